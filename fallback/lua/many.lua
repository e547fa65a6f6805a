-- Verify of many partitions without keys.
-- KEYS: records. In a cluster there is one, and ARGV has all: those in slots of the same server. If one is elsewhere, the
-- script fails; what it has done until then is what it does for each record by itself.
-- Answer: for each one epoch, revoked epoch, what is left of Grace and owner, with blanks between.
local a, written, names = {}, false, KEYS
if ARGV[1] then
  names = ARGV
end
for i = 1, #names do
  local f = redis.call('HMGET', names[i], 'i', 'm')
  local left, e, g, r, o
  if f[1] == server then
    e, g, r, o = string.match(f[2], '^(%d+) %d+ (%d+) %d+ (%d+) (.*)$')
    if e + 0 < 2147483647 then
      if g == '0' then
        left = '0'
      else
        g = tonumber(g)
        left = g > now and g <= now + Q and g - now
      end
    end
  end
  if left then -- the usual cases: no Grace, or in the middle of it. Nothing is to be done
    a[i] = e .. ' ' .. r .. ' ' .. left .. ' ' .. o
  else
    rec, seen, record = names[i], f[1], f[2]
    if not written then
      redis.call('HDEL', rec, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
      written = true
    end
    parse()
    enter()
    save()
    local left = 0
    if grace > 0 then
      left = grace - now
    end
    a[i] = string.format('%.0f %s %.0f %s', epoch, revoked, left, owner)
  end
end
return a
