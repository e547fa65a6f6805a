-- Mark: sets the format mark, or tells it.
-- KEYS: sessions. ARGV: [1] mode of fresh.lua, [2] the mark, or '' to be told. Answer: the mark in force, or ''.
if not f[1] and ARGV[2] ~= '' then
  grace, f[1], f[2], f[4] = begun(time, fresh(ARGV[1])), ARGV[2], server, process() .. ' ' .. server
  redis.call('HSET', tab, 'f', f[1], 'i', server, 'u', f[4], 'g', int(grace))
end
enter()
return f[1] or ''
