-- Sessions.Turn: a session's part in the round of the table. Answers the round's name, and whether it is complete: 1 or 0.
local function turn()
  local name, at, began, spoken = string.match(f[6] or '', '^(%S+) (%S+) (%d+)(.*)$')
  if at ~= named() or now >= tonumber(began) + 2 * Q then
    name, spoken = '', ''
  end
  if ARGV[12] ~= '' and ARGV[13] == name and ARGV[12] ~= name then
    name, at, began, spoken = ARGV[12], named(), int(now), ''
  end
  local me = ' ' .. ARGV[1] .. ' '
  if ARGV[11] == name and not string.find(spoken .. ' ', me, 1, true) then
    spoken = spoken .. ' ' .. ARGV[1]
  end
  local is = nil
  if name ~= '' then
    is = name .. ' ' .. at .. ' ' .. began .. spoken
  end
  if is and is ~= f[6] then
    redis.call('HSET', tab, 'r', is)
  elseif not is and f[6] then
    redis.call('HDEL', tab, 'r')
  end
  f[6] = is
  if ARGV[14] ~= '1' or name == '' or not complete() then
    return name, 0
  end
  local all = redis.call('HGETALL', tab)
  for i = 1, #all, 2 do
    local id = string.match(all[i], '^s:(.*)$')
    if id and not string.find(spoken .. ' ', ' ' .. id .. ' ', 1, true) then
      local expiry, ttl = member(id)
      local lives = not dead(expiry, ttl)
      if grace > 0 then -- by the clock of another server, and with a renewal that this one may lack
        lives = ttl > 0
      end
      if lives then
        return name, 0
      end
    end
  end
  return name, 1
end
