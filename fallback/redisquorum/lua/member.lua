-- What each message begins with. KEYS[1] the mark. ARGV: [1] the generation that the sender means, [2] a ballot, or an epoch, or '': the server
-- refuses what is of an earlier epoch than it knows, and learns of a later one. Epochs are the first eight digits of a ballot.
-- Answer: 'another' if it is no member of that generation; 'forgotten' if it has started since it was made one, so that what it had
-- acknowledged may be lost; 'earlier' and its epoch; or 'member' and its epoch, and what follows.
local m = redis.call('HMGET', KEYS[1], 'generation', 'epoch', 'run')
if m[1] ~= ARGV[1] then
  return {'another', ''}
end
if m[3] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
  return {'forgotten', ''}
end
local epoch = string.sub(ARGV[2], 1, 8)
if epoch ~= '' and epoch < m[2] then
  return {'earlier', m[2]}
end
if epoch > m[2] then
  redis.call('HSET', KEYS[1], 'epoch', epoch)
  m[2] = epoch
end
local a = {'member', m[2]}
