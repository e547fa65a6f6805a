-- The names of all records that this server has accepted something for. KEYS[2]: their set.
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  a[#a + 1] = name
end
return a
