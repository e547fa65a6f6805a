-- What every operation on the sessions begins with: the state of the table, and Sessions.enter.
-- KEYS[1] the hash of the sessions.
-- Fields: f format mark, with the Grace that all sessions that are opened use (length.go), i name of the server, u its process (process.lua) and its name when the last Grace began, g end of
-- Grace (ms), k the secrets (secret.go), r the round (SpokenRound): its name, its server's, when it began (ms), and the sessions that have
-- spoken, with blanks between; e where sessions are opened on all replicas (variant.go): Sessions.Changed; and 's:' .. session for each entry: expiry (ms),
-- time to live (ms), what it publishes, with blanks between. After the time to live, without a blank: its terms, two numbers
-- with a semicolon before each (length.go), and if the session has guardians, a colon, their version, and each after a comma
-- (guardians.go). Without a clock (observe.go), the expiry is a beat instead, which no other renewal has, and g is what names the Grace.
local tab = KEYS[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local f = redis.call('HMGET', tab, 'f', 'i', 'g', 'u', 'k', 'r', 'e')
local grace = tonumber(f[3] or 0)

local function int(n)
  return string.format('%.0f', n)
end

-- A Grace in the mark, in ms: the one in force (field ' grace='), or the one that it was formatted with (' was='), 0: none.
local units = {h = 3600000, m = 60000, s = 1000, ms = 1}
local function length(field)
  local total = 0
  for n, unit in string.gmatch(string.match(f[1] or '', field .. '(%S+)') or '', '([%d%.]+)(%a+)') do
    total = total + tonumber(n) * units[unit]
  end
  return math.floor(total + 0.5)
end
Q = math.max(Q, length(' grace='))
if f[1] and (string.find(f[1], ' clock=observers ', 1, true) ~= nil) ~= OBSERVED then
  error('the namespace was lost, and formatted by a process with another Options.ObserverClock')
end

-- Sessions.opened: whether a session counts once all replicas have it.
local OPENED = string.find(f[1] or '', ' openings=all ', 1, true) ~= nil

-- Sessions.complete: whether the table has all sessions there are.
local function complete()
  return grace == 0 or (OPENED and f[7] == int(grace))
end

-- Sessions.setGrace.
local function setlength(ms, raised)
  local was = length(' was=')
  if was == 0 then
    was = length(' grace=')
  end
  local mark = string.gsub(string.gsub(f[1], ' was=.*$', ''), ' grace=%S+', ' grace=' .. int(ms) .. 'ms')
  f[1] = mark .. ' was=' .. int(was) .. 'ms raised=' .. int(raised)
  redis.call('HSET', tab, 'f', f[1])
end

-- false: the table is lost.
local function enter()
  if not f[1] then
    return false
  end
  if f[2] ~= server then
    local run, was, name = process(), string.match(f[4] or '', '^(%S*) (.*)$')
    if not renamed(was, run) then
      local whole = now >= grace or complete()
      grace, name = begun(time, Q, grace), server
      redis.call('HDEL', tab, 'r', 'e')
      f[6], f[7] = nil, nil
      if OPENED and whole then
        f[7] = int(grace)
        redis.call('HSET', tab, 'e', f[7])
      end
    end
    f[2], f[4] = server, run .. ' ' .. name
    redis.call('HSET', tab, 'i', server, 'u', f[4], 'g', int(grace))
  end
  if OBSERVED then
    return true
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

-- What is left of Grace; or without a clock, what names it. Of a lost table the latter is -1.
local function left(lost)
  if OBSERVED then
    return lost and -1 or grace
  elseif lost then
    return Q
  elseif grace > 0 then
    return grace - now
  end
  return 0
end

-- A session's expiry, time to live, what it publishes, its guardians with their colon or '', and its terms or ''; or nil.
local function member(id)
  local x = redis.call('HGET', tab, 's:' .. id)
  if not x then
    return nil
  end
  local expiry, ttl, terms, guardians, info = string.match(x, '^(%d+) (%d+)([;%d]*)(%S*) (.*)$')
  expiry, ttl = tonumber(expiry), tonumber(ttl)
  if not OBSERVED and expiry > now + ttl then -- the clock stepped back
    expiry = now + ttl
    redis.call('HSET', tab, 's:' .. id, int(expiry) .. ' ' .. int(ttl) .. terms .. guardians .. ' ' .. info)
  end
  return expiry, ttl, info, guardians, terms
end

-- Whether an entry may be swept: it has expired, and if it is of a session that was buried (time to live 0), Q ago.
local function over(expiry, ttl)
  if OBSERVED then
    return false
  end
  return expiry <= now and (ttl > 0 or expiry + Q <= now)
end

-- Whether a session has expired: an entry without a time to live was buried, or without a clock declared dead.
local function dead(expiry, ttl)
  return not expiry or ttl == 0 or (not OBSERVED and now >= expiry)
end

-- A write that leaves nothing and that replicas get, where WAIT follows ('1'), which is about what was written: an answer that a session is
-- dead lets others have its keys.
local function told(waits)
  if waits == '1' then
    redis.call('HSET', tab, '', 1)
    redis.call('HDEL', tab, '')
  end
end

-- Terms that no session waits for: of one that was seen to stand still for its time to live. With a clock its entry would be gone.
local ENDED = ';9007199254740991;0'

-- Declares a session dead, so that it, if it lives, is not taken for lost data.
local function bury(id, at, terms)
  redis.call('HSET', tab, 's:' .. id, int(at) .. ' 0' .. terms .. ' ')
end

-- Grace because of older data, which have no round.
local function older(at)
  grace = at
  redis.call('HSET', tab, 'g', int(grace))
  redis.call('HDEL', tab, 'r', 'e')
  f[6], f[7] = nil, nil
end

-- Sessions.Witness: seen is when a session expires, as it was told last; or its beat, 0 if it knows to have expired.
local function witness(id, seen)
  seen = tonumber(seen)
  if OBSERVED then
    if grace == 0 and seen > 0 then
      local beat = member(id)
      if not beat or beat < seen then
        older(begun(time, Q))
      end
    end
    return
  end
  if grace > 0 or seen <= now then
    return
  end
  local expiry, ttl = member(id)
  if not expiry or (seen <= now + ttl and 2 * expiry + ttl < 2 * seen) then
    older(now + Q)
  end
end

-- Removes the entries that may be swept, outside Grace. Sessions.survey of the others.
local function survey()
  local least, most, all = math.huge, 0, redis.call('HGETALL', tab)
  local base = length(' was=')
  if base == 0 then
    base = length(' grace=')
  end
  for i = 1, #all, 2 do
    local id = string.match(all[i], '^s:(.*)$')
    if id then
      local expiry, ttl, _, _, terms = member(id)
      if grace == 0 and over(expiry, ttl) then
        redis.call('HDEL', tab, all[i])
      else
        local uses, needs = string.match(terms, '^;(%d+);(%d+)$')
        least, most = math.min(least, tonumber(uses or base)), math.max(most, tonumber(needs or base))
      end
    end
  end
  return least, most
end

-- Sessions.lower.
local function lower(needs)
  local q = length(' grace=')
  if grace == 0 and needs < q and now >= tonumber(string.match(f[1], ' raised=(%d+)') or 0) + q then
    setlength(needs, 0)
  end
end
