-- What every operation on a partition begins with: who this server is, and what the record says.
-- KEYS[1] the partition's hash. ARGV[1] the key, for an operation on one, or ''. Constants, which are put before: GUARDED
-- whether the server's identity can be read, Q the length of Grace in ms.
-- Fields: i identity of the server that wrote this, m the record, and for each row 'r:' .. key: session, request, epoch
-- and seq of the token, with blanks between.
local rec, key = KEYS[1], ARGV[1]
local server = '-'
if GUARDED then
  -- 40 digits. A plain search is much faster than a pattern.
  local info = redis.call('INFO', 'replication')
  local i = string.find(info, 'master_replid:', 1, true)
  server = string.sub(info, i + 14, i + 53)
end
local f = redis.call('HMGET', rec, 'i', 'm', 'r:' .. key)
local seen, record, row = f[1], f[2], f[3]
