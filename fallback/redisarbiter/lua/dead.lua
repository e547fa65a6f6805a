-- Dead: asks whether a session has expired.
-- KEYS: sessions. ARGV: [1] session, [2] the caller's own and [3] when that expires, as it was told.
-- Answer: 'alive' and ms left, 'dead' and 0, or 'in grace' and ms left of it.
redis.call('HDEL', tab, '')
if not enter() then
  return {'in grace', Q}
end
witness(ARGV[2], ARGV[3])
if grace > 0 then
  return {'in grace', left()}
end
local expiry = member(ARGV[1])
if not expiry or now >= expiry then
  return {'dead', 0}
end
return {'alive', expiry - now}
