-- ReclaimOwner: restores, in Grace, the record of an owner.
-- KEYS: record. ARGV: [1] '', [2] session, [3] epoch. Answer: verdict, record.
redis.call('HDEL', rec, '')
enter()
local e = tonumber(ARGV[3])
if owner == ARGV[2] and epoch == e then
  return answer('granted')
end
if grace == 0 or epoch > e then
  return answer('lost')
end
owner, epoch, seq, from, dirty = ARGV[2], e, 0, 0, true
return answer('granted')
