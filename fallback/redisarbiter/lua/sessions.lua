-- What every operation on the sessions begins with: the state of the table, and Sessions.enter.
-- KEYS[1] the hash of the sessions.
-- Fields: f format mark, i name of the server, u its process (process.lua) and its name when the last Grace began, g end of
-- Grace (ms), k the secrets (secret.go), and 's:' .. session for each entry: expiry (ms),
-- time to live (ms), what it publishes, with blanks between. A session that has guardians has them after the time to
-- live, without a blank: a colon, their version, and each after a comma (guardians.go).
local tab = KEYS[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local f = redis.call('HMGET', tab, 'f', 'i', 'g', 'u', 'k')
local grace = tonumber(f[3] or 0)

local function int(n)
  return string.format('%.0f', n)
end

-- false: the table is lost.
local function enter()
  if not f[1] then
    return false
  end
  if f[2] ~= server then
    local run, was, name = process(), string.match(f[4] or '', '^(%S*) (.*)$')
    if not renamed(was, run) then
      grace, name = now + Q, server
    end
    f[2], f[4] = server, run .. ' ' .. name
    redis.call('HSET', tab, 'i', server, 'u', f[4], 'g', int(grace))
  end
  if grace > now + Q then -- the clock stepped back
    grace = now + Q
    redis.call('HSET', tab, 'g', int(grace))
  end
  if grace > 0 and now >= grace then
    grace = 0
    redis.call('HSET', tab, 'g', '0')
  end
  return true
end

-- What the server was called when the last Grace began.
local function named()
  return string.match(f[4] or '', ' (.*)$') or server
end

local function left()
  if grace > 0 then
    return grace - now
  end
  return 0
end

-- A session's expiry, time to live, what it publishes, and its guardians with their colon or ''; or nil.
local function member(id)
  local x = redis.call('HGET', tab, 's:' .. id)
  if not x then
    return nil
  end
  local expiry, ttl, guardians, info = string.match(x, '^(%d+) (%d+)(%S*) (.*)$')
  expiry, ttl = tonumber(expiry), tonumber(ttl)
  if expiry > now + ttl then -- the clock stepped back
    expiry = now + ttl
    redis.call('HSET', tab, 's:' .. id, int(expiry) .. ' ' .. int(ttl) .. guardians .. ' ' .. info)
  end
  return expiry, ttl, info, guardians
end

-- Whether an entry may be swept: it has expired, and if it is of a session that was buried (time to live 0), Q ago.
local function over(expiry, ttl)
  return expiry <= now and (ttl > 0 or expiry + Q <= now)
end

-- Sessions.Witness: seen is when a session expires, as it was told last.
local function witness(id, seen)
  seen = tonumber(seen)
  if grace > 0 or seen <= now then
    return
  end
  local expiry, ttl = member(id)
  if not expiry or (seen <= now + ttl and 2 * expiry + ttl < 2 * seen) then
    grace = now + Q
    redis.call('HSET', tab, 'g', int(grace))
  end
end
