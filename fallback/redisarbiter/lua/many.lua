-- Verify of many partitions without keys.
-- KEYS: records. In a cluster there is one, and ARGV has all: those in slots of the same server. If one is elsewhere, the
-- script fails; what it has done until then is what it does for each record by itself.
-- Answer: what time it is (ms), then each record as it is stored. The caller takes it apart, which would be a third of
-- the script's time.
local names, call, find, sub, byte = KEYS, redis.call, string.find, string.sub, string.byte
if ARGV[1] then
  names = ARGV
end
local a, written, latest = {string.format('%.0f', now)}, false, now + Q
local last, within = nil, OBSERVED -- when Grace ends, and whether that is in the middle of it
for i = 1, #names do
  local f = call('HMGET', names[i], 'i', 'm')
  local m, g = f[2], nil
  if f[1] == server then
    local e = find(m, ' ', find(m, ' ', 1, true) + 1, true) -- a pattern would take longer
    if byte(m, e + 1) == 48 then
      g = true
    else
      local ends = sub(m, e + 1, find(m, ' ', e + 2, true) - 1)
      if not OBSERVED and ends ~= last then -- many have the same
        last, within = ends, ends + 0 > now and ends + 0 <= latest
      end
      g = within
    end
  end
  if not g then -- not one of the usual cases: no Grace, or in the middle of it
    rec, seen, record = names[i], f[1], m
    if not written then
      call('HDEL', rec, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
      written = true
    end
    parse()
    enter()
    save()
    m = text()
  end
  a[i + 1] = m
end
return a
