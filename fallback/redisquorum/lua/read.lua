-- KEYS from the second on: records. Answer: for each what is promised and was accepted: a ballot, and ballot, version, value.
for i = 2, #KEYS do
  local c = redis.call('HMGET', KEYS[i], 'promised', 'ballot', 'version', 'value')
  for j = 1, 4 do
    a[#a + 1] = c[j] or ''
  end
end
return a
