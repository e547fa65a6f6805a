-- Dead: asks whether a session has expired.
-- KEYS: sessions. ARGV: [1] session, [2] the caller's own and [3] when that expires, as it was told. [4] the beat of the session
-- that the caller has seen for long enough, or 0: without a clock, that declares it dead. [5] '1': WAIT follows.
-- Answer: 'alive' and ms left, 'dead' and 0, or 'in grace' and ms left of it. Without a clock: 'alive', the beat and the time to live.
redis.call('HDEL', tab, '')
if not enter() then
  return {'in grace', left(true)}
end
witness(ARGV[2], ARGV[3])
if grace > 0 then
  return {'in grace', left()}
end
local expiry, ttl = member(ARGV[1])
if dead(expiry, ttl) then
  told(ARGV[5])
  return {'dead', 0}
end
if OBSERVED then
  if expiry == tonumber(ARGV[4]) then
    bury(ARGV[1], expiry, ENDED)
    return {'dead', 0}
  end
  return {'alive', expiry, ttl}
end
return {'alive', expiry - now}
