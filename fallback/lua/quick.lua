-- The usual case of Lock, before anything else is even defined: nobody holds the key, nobody waits.
if seen == server and grace == 0 and owner == '' and not row and seq < 4294967295 - ARGV[9]
  and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('HSET', rec,
    'm', string.format('%.0f %.0f 0 %s %s ', epoch, seq + ARGV[9], from, revoked),
    'r:' .. ARGV[3], string.format('%s %s %.0f %.0f', ARGV[7], ARGV[8], epoch, seq + 1))
  return {'granted', '', epoch, 0, 0, epoch, seq + 1, 0}
end
