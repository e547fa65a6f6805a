-- Makes a server a member: of a new generation, or again of its own. KEYS: the mark. ARGV: [1] the process that runs, [2] to [4] what the mark says,
-- generation, epoch and process, '' for none, [5] and [6] the generation and the epoch that it is to say.
-- Answer: 1, or 0 if another process runs, or the mark says something else.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
local m = redis.call('HMGET', KEYS[1], 'generation', 'epoch', 'run')
if run ~= ARGV[1] or (m[1] or '') ~= ARGV[2] or (m[2] or '') ~= ARGV[3] or (m[3] or '') ~= ARGV[4] then
  return 0
end
if m[1] and m[1] ~= ARGV[5] then -- what it had as a member of another generation is of no use
  local prefix = string.sub(KEYS[1], 1, -5) .. m[1]
  for _, name in ipairs(redis.call('SMEMBERS', prefix .. ':names')) do
    redis.call('UNLINK', prefix .. ':r:' .. name)
  end
  redis.call('UNLINK', prefix .. ':names')
end
redis.call('HSET', KEYS[1], 'generation', ARGV[5], 'epoch', ARGV[6], 'run', run)
return 1
