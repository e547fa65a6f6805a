-- Save: replaces an account's record, unless a later version is stored.
-- KEYS: the account, a hash: v version, r record. ARGV: [1] version, [2] record, [3] milliseconds after which it is deleted, 0:
-- never. Answer: 1, or 0 if it is superseded.
local v = redis.call('HGET', KEYS[1], 'v')
if v and v > ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'r', ARGV[2])
if ARGV[3] ~= '0' then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
else
  redis.call('PERSIST', KEYS[1])
end
return 1
