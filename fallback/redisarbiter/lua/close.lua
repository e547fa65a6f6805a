-- CloseSession: deletes a session. KEYS: sessions. ARGV: [1] session. Answer: 1.
enter()
redis.call('HDEL', tab, 's:' .. ARGV[1])
return 1
