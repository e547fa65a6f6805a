-- What every operation on a partition begins with: what the record says.
-- KEYS[1] the partition's hash. ARGV[1] the name of a hold, for an operation on one, or ''. Most names are a key; the others say a mode
-- and a holder as well (mode.go).
-- Fields: i name of the server that wrote this, u its process (process.lua), m the record, e the Grace if that began because the server is
-- another one; for each row 'r:' .. name: session, request,
-- epoch and seq of the token, with blanks between; and 'n:' .. key: what the names of that key say beside it, with blanks between.
local rec, key, name, spec = KEYS[1], ARGV[1], ARGV[1], ''
local function split(name)
  if string.byte(name, -1) ~= 255 or string.byte(name, -2) ~= 0 then
    return name, ''
  end
  local key, spec = string.match(name, '^(.*)%z([0-9A-Za-z/]+)%z\255$')
  return key or name, spec or ''
end
key, spec = split(name)
local f = redis.call('HMGET', rec, 'i', 'm', 'r:' .. name, 'n:' .. key)
local seen, record, row, specs = f[1], f[2], f[3], f[4]
