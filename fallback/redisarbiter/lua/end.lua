-- EndGrace: ends a Grace by its name.
-- KEYS: record. ARGV: [1] '', [2] what the server is called, and [3] the Grace. Answer: 1.
redis.call('HDEL', rec, '')
enter()
if server == ARGV[2] and redis.call('HGET', rec, 'e') == ARGV[3] then -- the field goes with the Grace that it names
  local ends = OBSERVED and grace / 1000 + Q or grace
  finish()
  if owner == '' then
    epoch = math.min(math.max(epoch, math.floor(ends / 1000) - 946684800), 2147483647)
  end
end
save()
return 1
