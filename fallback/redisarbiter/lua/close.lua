-- CloseSession: deletes a session. KEYS: sessions. ARGV: [1] session. Answer: 1.
local there = enter()
redis.call('HDEL', tab, 's:' .. ARGV[1])
if there then
  local _, most = survey()
  lower(most)
end
return 1
