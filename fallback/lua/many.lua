-- Verify of many partitions without keys: what is to be told of most of them. For servers that are not part of a cluster.
-- KEYS: records. Answer: for each one epoch, revoked epoch and owner, with blanks between; or '' if there is more to it:
-- another server, Grace, or no record.
local a = {}
for i = 1, #KEYS do
  local f = redis.call('HMGET', KEYS[i], 'i', 'm')
  a[i] = ''
  if f[1] == server then
    local epoch, revoked, owner = string.match(f[2], '^(%d+) %d+ 0 %d+ (%d+) (.*)$')
    if epoch then
      a[i] = epoch .. ' ' .. revoked .. ' ' .. owner
    end
  end
end
return a
