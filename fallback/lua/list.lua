-- List: the sessions that have not expired. The others are swept.
-- KEYS: sessions. ARGV: none. Answer: session and address, session and address, ...
enter()
local a = {}
local all = redis.call('HGETALL', tab)
for i = 1, #all, 2 do
  local id = string.match(all[i], '^s:(.*)$')
  if id then
    local expiry, _, addr = member(id)
    if grace > 0 or now < expiry then
      a[#a + 1] = id
      a[#a + 1] = addr
    else
      redis.call('HDEL', tab, all[i])
    end
  end
end
return a
