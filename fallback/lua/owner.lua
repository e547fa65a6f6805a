-- ReclaimOwner: restores, in Grace, the record of an owner.
-- KEYS: record. ARGV: [1], [2] as in state.lua, [4] session, [5] epoch. Answer: verdict, record.
redis.call('HDEL', rec, '')
enter()
local e = tonumber(ARGV[5])
if owner == ARGV[4] and epoch == e then
  return answer('granted')
end
if grace == 0 or epoch > e then
  return answer('lost')
end
owner, epoch, seq, from, dirty = ARGV[4], e, 0, 0, true
return answer('granted')
