-- Demote, and DemoteUnserved: the owner's partition becomes Shared.
-- KEYS: record. ARGV: [1] '', [2] session, [3] epoch, [4] '1' to replace the rows, then key and row, key and row, ...
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
  for _, field in ipairs(redis.call('HKEYS', rec)) do
    if string.sub(field, 1, 2) == 'r:' then
      redis.call('HDEL', rec, field)
    end
  end
  for i = 5, #ARGV, 2 do
    redis.call('HSET', rec, 'r:' .. ARGV[i], ARGV[i + 1])
  end
end
advance('')
return answer('granted')
