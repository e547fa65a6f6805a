-- Accepts values for records with the ballot ARGV[2], unless a higher one was promised. KEYS: the mark, the set of names, and records. ARGV from the
-- third on: for each record its name, version and value. Answer: for each what is promised now, and three times ''.
for i = 3, #KEYS do
  local at = 3 + 3 * (i - 3)
  local promised = redis.call('HGET', KEYS[i], 'promised') or ''
  if promised <= ARGV[2] then
    promised = ARGV[2]
    redis.call('SADD', KEYS[2], ARGV[at])
    redis.call('HSET', KEYS[i], 'promised', promised, 'ballot', promised, 'version', ARGV[at + 1], 'value', ARGV[at + 2])
  end
  for _, x in ipairs({promised, '', '', ''}) do
    a[#a + 1] = x
  end
end
return a
