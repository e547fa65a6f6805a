-- Acquire: makes a session the owner of the partition.
-- KEYS: record. ARGV: [1], [2] as in state.lua, [4] session, [5] expected epoch, [6] expected owner or '',
-- [7] '1' if that owner was seen dead.
-- Answer: verdict, record, and if granted: key and row, key and row, ...
enter()
if grace > 0 then
  return answer('in grace')
end
local expected = tonumber(ARGV[5])
if owner ~= ARGV[4] or tonumber(from) ~= expected then
  local free = owner == '' or (owner == ARGV[6] and ARGV[7] == '1')
  if epoch ~= expected or not free then
    return answer('conflict')
  end
  advance(ARGV[4])
  from = expected
end
local a = answer('granted')
local all = redis.call('HGETALL', rec)
for i = 1, #all, 2 do
  if string.sub(all[i], 1, 2) == 'r:' then
    a[#a + 1] = string.sub(all[i], 3)
    a[#a + 1] = all[i + 1]
  end
end
return a
