-- CloseSession: deletes a session. KEYS: sessions. ARGV: [1], [2] as in sessions.lua, [3] session. Answer: 1.
enter()
redis.call('HDEL', tab, 's:' .. ARGV[3])
return 1
