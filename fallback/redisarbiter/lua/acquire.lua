-- Acquire: makes a session the owner of the partition.
-- KEYS: record. ARGV: [1] '', [2] session, [3] expected epoch, [4] expected owner or '', [5] '1' if that owner was seen
-- dead, [6] '1' if WAIT follows.
-- Answer: verdict, record, and if granted: key and row, key and row, ...
enter()
if grace > 0 then
  return answer('in grace')
end
local expected = tonumber(ARGV[3])
if owner ~= ARGV[2] or tonumber(from) ~= expected then
  local free = owner == '' or (owner == ARGV[4] and ARGV[5] == '1')
  if epoch ~= expected or not free then
    return answer('conflict')
  end
  advance(ARGV[2])
  from = expected
elseif ARGV[6] == '1' then -- it was acquired before, perhaps by a call whose WAIT has failed: a write that leaves nothing, as WAIT is about writes
  redis.call('HSET', rec, '', 1)
  redis.call('HDEL', rec, '')
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
