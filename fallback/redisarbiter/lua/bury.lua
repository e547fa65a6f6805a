-- Bury: ends a session of which enough guardians say that it is dead.
-- KEYS: sessions. ARGV: [1] session, [2] version of its guardians, [3] the sessions that voted, with commas between, [4] '1': WAIT follows.
-- Answer: 'alive', ms left and the recorded version; 'dead', 0, 0; or 'in grace', ms left of it, 0.
redis.call('HDEL', tab, '')
if not enter() then
  return {'in grace', left(true), 0}
end
if grace > 0 then
  return {'in grace', left(), 0}
end
local expiry, ttl, _, guardians, terms = member(ARGV[1])
if dead(expiry, ttl) then
  told(ARGV[4])
  return {'dead', 0, 0}
end
local version, set = string.match(guardians, '^:(%d+)(.*)$')
local count, votes, voters = 0, 0, ',' .. ARGV[3] .. ','
for id in string.gmatch(set or '', '[^,]+') do
  count = count + 1
  if string.find(voters, ',' .. id .. ',', 1, true) then
    votes = votes + 1
  end
end
if version == ARGV[2] and votes >= math.floor(count / 2) + 1 then
  bury(ARGV[1], OBSERVED and expiry or now, terms)
  return {'dead', 0, 0}
end
return {'alive', OBSERVED and ttl or expiry - now, tonumber(version or 0)}
