-- LoadResult: what was computed under a key's lock.
-- KEYS: the result, a hash: f fence as 20 digits, t when it was saved (ms), v the value. ARGV: none.
-- Answer: fence, ms since it was saved, value; or nothing.
local r = redis.call('HMGET', KEYS[1], 'f', 't', 'v')
if not r[1] then
  return {}
end
local time = redis.call('TIME')
local age = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(r[2])
return {r[1], math.max(0, age), r[3]} -- the clock may have stepped back
