-- Revoke: asks the owner of an epoch to demote.
-- KEYS: record. ARGV: [1], [2] as in state.lua, [4] epoch, [5] number of the partition, [6] prefix of the sessions'
-- channels. Answer: 1.
redis.call('HDEL', rec, '')
enter()
if owner ~= '' and epoch == tonumber(ARGV[4]) then
  revoked, dirty = epoch, true
  redis.call('PUBLISH', ARGV[6] .. owner, 'r' .. ARGV[5] .. ' ' .. ARGV[4])
end
save()
return 1
