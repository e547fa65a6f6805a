-- Verify, and Load: reads the record and rows.
-- KEYS: record. ARGV: [1], [2] as in state.lua, [3] to the last: keys. Answer: 'granted', record, rows ('' for none).
redis.call('HDEL', rec, '')
enter()
local a = answer('granted')
for first = 3, #ARGV, 1000 do
  local fields = {}
  for i = first, math.min(first + 999, #ARGV) do
    fields[#fields + 1] = 'r:' .. ARGV[i]
  end
  local rows = redis.call('HMGET', rec, unpack(fields))
  for i = 1, #fields do
    a[#a + 1] = rows[i] or ''
  end
end
return a
