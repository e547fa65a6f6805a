-- Adopt, and ReclaimRow: writes the row of a hold that is in force.
-- KEYS: record. ARGV: [1] key, [2] 'adopt' or 'reclaim', [3] row. Answer: verdict, record.
redis.call('HDEL', rec, '')
enter()
local field, was = 'r:' .. key, row
if was == ARGV[3] then
  return answer('granted')
end
local function token(row)
  local e, s = string.match(row, ' (%d+) (%d+)$')
  return tonumber(e), tonumber(s)
end
local e, s = token(ARGV[3])
local we, ws = 0, 0
if was then
  we, ws = token(was)
end
local lower = we < e or (we == e and ws < s)
local same = we == e and ws == s
if grace > 0 then
  if not lower and not same then
    return answer('lost')
  end
  redis.call('HSET', rec, field, ARGV[3])
  if e > epoch then -- a later epoch existed: the owner that this record names is history
    epoch, owner, seq, from, dirty = e, '', 0, 0, true
  end
  return answer('granted')
end
if ARGV[2] == 'adopt' and e == epoch and lower then
  redis.call('HSET', rec, field, ARGV[3])
  return answer('granted')
end
return answer('lost')
