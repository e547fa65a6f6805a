-- What every operation on a partition begins with: who this server is, and what the record says.
-- KEYS[1] the partition's hash. ARGV[1] '1' if the server's identity can be read, ARGV[2] Q in ms, ARGV[3] the key, for
-- an operation on one.
-- Fields: i identity of the server that wrote this, m the record, and for each row 'r:' .. key: session, request, epoch
-- and seq of the token, with blanks between.
local rec = KEYS[1]
local server = '-'
if ARGV[1] == '1' then
  -- Both are 40 digits. A plain search is much faster than a pattern.
  local a, b = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
  local i, j = string.find(a, 'run_id:', 1, true), string.find(b, 'master_replid:', 1, true)
  server = string.sub(a, i + 7, i + 46) .. string.sub(b, j + 14, j + 53)
end
local f = redis.call('HMGET', rec, 'i', 'm', 'r:' .. (ARGV[3] or ''))
local seen, row = f[1], f[3]
local epoch, seq, grace, from, revoked, owner = 0, 0, 0, 0, 0, ''
if f[2] then
  epoch, seq, grace, from, revoked, owner = string.match(f[2], '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  epoch, seq, grace = tonumber(epoch), tonumber(seq), tonumber(grace)
end
