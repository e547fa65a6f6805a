-- Open, and Renew: creates a session, extends it, or says that it is dead.
-- KEYS: sessions. ARGV: [1] session, [2] time to live (ms), [3] 'open' or 'renew', [4] what the session publishes,
-- [5] its guardians: their version, and each after a comma; or ''. Those of a later version stay.
-- [6] when it expires, as it was told. [7] the Grace that it uses, and [8] the one that it needs (ms). [9] the beat of this renewal; and
-- [10] of how many entries at most the answer tells. (Without a clock.) Its part in the round (RoundCall): [11] the one that it has spoken for,
-- [12] the name of one to begin, [13] after which, [14] '1' to be told whether the round is complete. [15] '1' if the session counts once
-- all replicas have it.
-- Answer: 'alive', 'dead', 'wait' (Sessions.OpenWith), 'lost' (the table) or 'other' (a namespace that was made anew, in another way), identity of the server, ms left of Grace, number of
-- sessions, secrets, what time it is (ms), the recorded version of its guardians, 0: it has none, the mark's Grace (ms), the round's name, 1 if
-- that is complete, and 1 if the table did not have the session, 2 if it may not have had it before a renewal that this one does not know of.
-- Without a clock also, with 'alive' and 'wait': entries of the table, each its field and its text.
redis.call('HDEL', tab, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
if not enter() then
  return {'lost', server, 0, 0, '', 0, 0, 0, '', 0, 0}
end
if ARGV[3] == 'renew' then
  witness(ARGV[1], ARGV[6])
end
local expiry, ttl, _, guardians = member(ARGV[1])
if OPENED ~= (ARGV[15] == '1') then
  return {'other', server, 0, 0, '', 0, 0, 0, '', 0, 0}
end
-- An answer; its number of sessions is filled in, and what is without a clock.
local function telling(answer)
  local fields = 4 -- that are not sessions
  for i = 5, 7 do
    if f[i] then
      fields = fields + 1
    end
  end
  answer[4] = redis.call('HLEN', tab) - fields
  if OBSERVED then
    local entries
    if answer[4] <= tonumber(ARGV[10]) then
      entries = redis.call('HGETALL', tab)
    else
      entries = redis.call('HRANDFIELD', tab, ARGV[10], 'WITHVALUES')
    end
    for i = 1, #entries do
      answer[#answer + 1] = entries[i]
    end
  end
  return answer
end
local unknown = not expiry
-- An answer to an earlier renewal was lost, or is on its way: it may have told that the entry was missing.
local unheard = OPENED and expiry and grace > 0 and not complete() and expiry > tonumber(ARGV[6])
if unknown and grace > 0 and complete() and ARGV[3] == 'renew' then
  older(now + Q) -- it lacks one: it is of a backup, say
end
local alive = (grace > 0 and ttl ~= 0) or not dead(expiry, ttl)
local uses, needs = tonumber(ARGV[7]), tonumber(ARGV[8])
local mark = length(' grace=')
if ARGV[3] == 'open' and not expiry then
  alive = true
  local least, most = survey()
  if needs > mark or uses < mark or least < needs then
    if grace == 0 and needs >= mark then
      setlength(needs, now)
    end
    return telling({'wait', named(), left(), 0, '', 0, 0, length(' grace='), '', 0, 0})
  end
  lower(math.max(most, needs))
elseif alive and needs > mark then
  setlength(needs, now)
end
if not alive then
  return {'dead', named(), left(), 0, '', 0, 0, length(' grace='), '', 0, 0}
end
local version = tonumber(string.match(guardians or '', '^:(%d+)') or 0)
local new = tonumber(string.match(ARGV[5], '^%d+') or 0)
if new > version then
  version, guardians = new, ':' .. ARGV[5]
end
local till = now + tonumber(ARGV[2])
if OBSERVED then -- a later renewal may have been executed before
  till = math.max(tonumber(ARGV[9]), expiry or 0)
end
redis.call('HSET', tab, 's:' .. ARGV[1], int(till) .. ' ' .. ARGV[2] .. ';' .. ARGV[7] .. ';' .. ARGV[8] .. (guardians or '') .. ' ' .. ARGV[4])
if needs < length(' grace=') and grace == 0 then
  local _, most = survey()
  lower(most)
end
if OPENED and grace == 0 and math.floor(now / 1000) % 16 == 0 then -- Sessions.tidy
  survey()
end
local round, all = turn()
return telling({'alive', named(), left(), 0, f[5] or '', now, version, length(' grace='), round, all, (unknown and 1) or (unheard and 2) or 0})
