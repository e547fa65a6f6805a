-- Demote, and DemoteUnserved: the owner's partition becomes Shared.
-- KEYS: record. ARGV: [1] '', [2] session, [3] epoch, [4] '1' to replace the rows, then name and row, name and row, ...
-- Answer: verdict, record.
redis.call('HDEL', rec, '')
enter()
if grace > 0 then
  return answer('in grace')
end
if owner ~= ARGV[2] or epoch ~= tonumber(ARGV[3]) then
  return answer('stale')
end
if ARGV[4] == '1' then
  local rows, old = {}, {}
  for i = 5, #ARGV, 2 do
    rows[i - 4], rows[i - 3] = 'r:' .. ARGV[i], ARGV[i + 1]
  end
  for _, field in ipairs(redis.call('HKEYS', rec)) do
    if string.match(field, '^[rn]:') then
      old[#old + 1] = field
    end
  end
  for i = 1, #old, 1000 do -- a stack has room for some thousands
    redis.call('HDEL', rec, unpack(old, i, math.min(i + 999, #old)))
  end
  for i = 1, #rows, 1000 do
    redis.call('HSET', rec, unpack(rows, i, math.min(i + 999, #rows)))
  end
  for i = 5, #ARGV, 2 do
    enterName(ARGV[i])
  end
end
advance('')
return answer('granted')
