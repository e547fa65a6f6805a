-- SaveResult: keeps a result, unless one with a higher fence is kept.
-- KEYS: the result, see load_result.lua. ARGV: [1] fence as 20 digits, [2] value, [3] for how long (ms).
-- Answer: verdict.
if ARGV[1] == '00000000000000000001' then -- of coord's observers, which an operator needs at maxmemory: no token is as low
  redis.call('HDEL', KEYS[1], '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
end
local fence = redis.call('HGET', KEYS[1], 'f')
if fence and fence > ARGV[1] then -- as texts: a Lua number cannot hold a fence
  return 'stale'
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], 'f', ARGV[1], 't', now, 'v', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 'granted'
