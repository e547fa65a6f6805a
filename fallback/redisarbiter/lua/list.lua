-- List: the sessions that have not expired. The others are swept, in Grace only left out if they
-- expired more than Q before it began.
-- KEYS: sessions. ARGV: none. Answer: 'in grace' and ms left of it, or 'listed' and 0; then session and what it publishes, and so on, ...
-- Without a clock: all entries, and after what each publishes, its beat and its time to live, which is 0 if it was declared dead.
redis.call('HDEL', tab, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
if not enter() then
  return {'in grace', left(true)}
end
local a = {grace > 0 and 'in grace' or 'listed', left()}
local all = redis.call('HGETALL', tab)
for i = 1, #all, 2 do
  local id = string.match(all[i], '^s:(.*)$')
  if id then
    local expiry, ttl, info = member(id)
    if OBSERVED then
      for _, v in ipairs({id, info, expiry, ttl}) do
        a[#a + 1] = v
      end
    elseif now < expiry or grace > 0 and expiry > grace - 2 * Q and ttl > 0 then
      a[#a + 1] = id
      a[#a + 1] = info
    elseif grace == 0 and over(expiry, ttl) then
      redis.call('HDEL', tab, all[i])
    end
  end
end
return a
