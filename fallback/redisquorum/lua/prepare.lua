-- Promises for records that nothing of a lower ballot than ARGV[2] will be accepted, unless a higher one was promised. KEYS from the second
-- on: records. Answer: as in read.lua, with what is promised now.
for i = 2, #KEYS do
  local c = redis.call('HMGET', KEYS[i], 'promised', 'ballot', 'version', 'value')
  if not c[1] or c[1] < ARGV[2] then
    redis.call('HSET', KEYS[i], 'promised', ARGV[2])
    c[1] = ARGV[2]
  end
  for j = 1, 4 do
    a[#a + 1] = c[j] or ''
  end
end
return a
