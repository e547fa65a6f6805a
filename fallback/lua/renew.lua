-- Open, and Renew: creates a session, extends it, or says that it is dead.
-- KEYS: sessions. ARGV: [1], [2] as in sessions.lua, [3] session, [4] time to live (ms), [5] 'open' or 'renew',
-- [6] address.
-- Answer: 'alive', 'dead' or 'lost' (the table), identity of the server, ms left of Grace.
redis.call('HDEL', tab, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
if not enter() then
  return {'lost', server, 0}
end
local expiry, _, addr = member(ARGV[3])
local alive = grace > 0 or (expiry and now < expiry)
if ARGV[5] == 'open' and not expiry then
  alive = true
  if grace == 0 then
    local all = redis.call('HGETALL', tab)
    for i = 1, #all, 2 do
      local id = string.match(all[i], '^s:(.*)$')
      if id and member(id) <= now then
        redis.call('HDEL', tab, all[i])
      end
    end
  end
end
if not alive then
  return {'dead', server, left()}
end
if not expiry then
  addr = ARGV[6]
end
redis.call('HSET', tab, 's:' .. ARGV[3], int(now + tonumber(ARGV[4])) .. ' ' .. ARGV[4] .. ' ' .. addr)
return {'alive', server, left()}
