-- Ends a Grace that a process has seen for long enough.
-- KEYS: record. ARGV: [1] '', [2] the Grace, [3] for how long it was seen (ms). Answer: 1.
redis.call('HDEL', rec, '')
enter()
if OBSERVED and grace > 0 and grace == tonumber(ARGV[2]) and tonumber(ARGV[3]) >= Q then
  finish()
end
save()
return 1
