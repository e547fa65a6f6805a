-- Verify, and Load: reads the record and rows, and whether the first of the holds are waited for.
-- KEYS: record, and the queues of the first of the holds. ARGV: [1] '', then names of holds.
-- Answer: 'granted', record, rows ('' for none), and for each queue 1 or 0.
redis.call('HDEL', rec, '')
enter()
local a = answer('granted')
for first = 2, #ARGV, 1000 do
  local fields = {}
  for i = first, math.min(first + 999, #ARGV) do
    fields[#fields + 1] = 'r:' .. ARGV[i]
  end
  local rows = redis.call('HMGET', rec, unpack(fields))
  for i = 1, #fields do
    a[#a + 1] = rows[i] or ''
  end
end
for i = 2, #KEYS do
  a[#a + 1] = contended(ARGV[i], KEYS[i])
end
return a
