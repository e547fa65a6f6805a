-- CloseSession: deletes a session. KEYS: sessions. ARGV: [1] session. Answer: 1.
redis.call('HDEL', tab, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
enter()
redis.call('HDEL', tab, 's:' .. ARGV[1])
return 1
