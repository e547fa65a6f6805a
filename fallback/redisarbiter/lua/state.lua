-- What every operation on a partition begins with: what the record says.
-- KEYS[1] the partition's hash. ARGV[1] the key, for an operation on one, or ''.
-- Fields: i name of the server that wrote this, u its process (process.lua), m the record, and for each row 'r:' .. key: session, request, epoch
-- and seq of the token, with blanks between.
local rec, key = KEYS[1], ARGV[1]
local f = redis.call('HMGET', rec, 'i', 'm', 'r:' .. key)
local seen, record, row = f[1], f[2], f[3]
