-- Verify of many partitions without keys.
-- KEYS: records. In a cluster there is one, and ARGV has all: those in slots of the same server. If one is elsewhere, the
-- script fails, and where a record has to be written at maxmemory, and on a replica; what it has done until then is what it does for each
-- record by itself.
-- Answer: what the server is called, what time it is (ms), then each record as it is stored. The caller takes it apart, which would be a
-- third of the script's time.
local names, call, find, sub, byte = KEYS, redis.call, string.find, string.sub, string.byte
if ARGV[1] then
  names = ARGV
end
if find(info, 'role:slave', 1, true) then -- what it has may be old
  error('READONLY')
end
local a, latest = {server, string.format('%.0f', now)}, now + Q
local last -- when Grace ends that is in the middle of it
for i = 1, #names do
  local f = call('HMGET', names[i], 'i', 'm')
  local m, g = f[2], nil
  if f[1] == server then
    local e = find(m, ' ', find(m, ' ', 1, true) + 1, true) -- a pattern would take longer
    if byte(m, e + 1) == 48 or (last and find(m, last, e, true) == e) then
      g = true
    else
      local ends = sub(m, e + 1, find(m, ' ', e + 2, true) - 1)
      g = OBSERVED or ends + 0 > now and ends + 0 <= latest
      if g then -- many have the same
        last = ' ' .. ends .. ' '
      end
    end
  end
  if not g then -- not one of the usual cases: no Grace, or in the middle of it
    rec, seen, record = names[i], f[1], m
    parse()
    enter()
    save()
    m = text()
  end
  a[i + 2] = m
end
return a
