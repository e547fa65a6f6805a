-- Revoke: asks the owner of an epoch to demote.
-- KEYS: record. ARGV: [1] '', [2] epoch, [3] number of the partition. Answer: 1.
redis.call('HDEL', rec, '')
enter()
if owner ~= '' and epoch == tonumber(ARGV[2]) then
  revoked, dirty = epoch, true
  redis.call('PUBLISH', channel(owner), 'r' .. ARGV[3] .. ' ' .. ARGV[2])
end
save()
return 1
