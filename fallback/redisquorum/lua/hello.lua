-- What a server says of itself. KEYS: the mark. Answer: the process that runs, its mode, what it does when its memory is full, and
-- what the mark says: generation, epoch, process; '' for none.
local info = redis.call('INFO', 'server')
local policy = string.match(redis.call('INFO', 'memory'), 'maxmemory_policy:([%w%-]+)')
local m = redis.call('HMGET', KEYS[1], 'generation', 'epoch', 'run')
return {string.match(info, 'run_id:(%w+)') or '', string.match(info, 'redis_mode:(%w+)') or '', policy or '',
  m[1] or '', m[2] or '', m[3] or ''}
