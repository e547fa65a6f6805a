-- Put: stores a record unless one with a higher fence is there.
-- KEYS: record. ARGV: [1] fence in 20 digits, which compare as texts (a Lua number would lose some), [2] record, [3] ms to
-- live.
-- Answer: 1 if it was stored, 0 if not.
if redis.call('GETRANGE', KEYS[1], 0, 19) > ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', ARGV[3])
return 1
