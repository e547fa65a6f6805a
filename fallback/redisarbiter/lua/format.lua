-- Format: creates the record of a partition of a new namespace.
-- KEYS: record. ARGV: [1] '', [2] mode of fresh.lua. Answer: 1 if somebody owns it, or holds a key of it.
local used = 0
if not seen then
  grace, seen, run = begun(time, fresh(ARGV[2])), server, process()
elseif owner ~= '' or redis.call('HLEN', rec) - (redis.call('HGET', rec, 'e') and 1 or 0) > 3 then
  used = 1
end
enter()
save()
return used
