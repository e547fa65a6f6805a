-- Save: replaces an account's record, unless a later version is stored.
-- KEYS: the account, a hash: v version, r record. ARGV: [1] version, [2] record. Answer: 1, or 0 if it is superseded.
local v = redis.call('HGET', KEYS[1], 'v')
if v and v > ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'r', ARGV[2])
return 1
