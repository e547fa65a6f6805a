-- EndGrace: ends a Grace by its name.
-- KEYS: record. ARGV: [1] '', [2] what the server is called, and [3] the Grace. Answer: 1.
redis.call('HDEL', rec, '')
enter()
if server == ARGV[2] and string.format('%.0f', grace) == ARGV[3] then
  finish(OBSERVED and grace / 1000 + Q or grace)
end
save()
return 1
