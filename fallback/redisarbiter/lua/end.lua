-- EndGrace: ends a Grace by its name.
-- KEYS: record. ARGV: [1] '', [2] the server's process, or what it is called if that is not known, and [3] the Grace. Answer: 1 if it has
-- ended, 0 if the record is not in it.
redis.call('HDEL', rec, '')
enter()
local by = run or redis.call('HGET', rec, 'u') or ''
if by == '' then
  by = server
end
local ends = by == ARGV[2] and string.format('%.0f', grace) == ARGV[3]
if ends then
  finish(now + math.floor(Q / 2))
end
save()
return ends and 1 or 0
