-- Ends a Grace that a process has seen for long enough, and declares sessions dead whose beats it has. What was declared dead for long
-- enough goes.
-- KEYS: sessions. ARGV: [1] the Grace, or 0, and [2] for how long it was seen (ms). Then for each session: its name, and the beat that was seen.
-- Answer: 1.
redis.call('HDEL', tab, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
if not OBSERVED or not enter() then
  return 1
end
if grace == tonumber(ARGV[1]) and tonumber(ARGV[2]) >= Q then
  grace = 0
  redis.call('HSET', tab, 'g', '0')
end
for i = 3, #ARGV, 2 do
  local beat, ttl = member(ARGV[i])
  if grace == 0 and beat == tonumber(ARGV[i + 1]) then
    if ttl == 0 then
      redis.call('HDEL', tab, 's:' .. ARGV[i])
    else
      bury(ARGV[i], beat, ENDED)
    end
  end
end
return 1
