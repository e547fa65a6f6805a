-- The queue of a contended key. KEYS[2] a sorted set of 'session request', and for a hold whose name is no key what that says besides. The
-- score is the time of arrival in microseconds, or later so that it is above all others; for the waiter that the key is promised to, minus the end of the promise in ms: so that
-- one is first. Constants: PROMISE how long a promise holds (ms), LIFE of a queue
-- that nobody asks about any more (ms).
local queue = KEYS[2]

local function send(session, text)
  redis.call('PUBLISH', channel(session), text)
end

-- The waiter of an identity for the hold that ARGV[1] names.
local function waiter(id)
  if spec == '' then
    return id
  end
  return id .. ' ' .. spec
end

local function apart(waiter)
  return string.match(waiter, '^(%S+) (%d+) ?(%S*)$')
end

local function promised(waiter, till)
  redis.call('ZADD', queue, string.format('%.0f', -till), waiter)
end

-- Finds the waiter that a key is for, wakes it unless it is me, drops those that were woken and did not come. There is none if the
-- first one has to wait for holds: these are the third value, and it is the fourth.
local function promise(me)
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    if not head[1] then
      return nil
    end
    local till = -tonumber(head[2])
    if till > now + PROMISE then -- the clock stepped back
      till = now + PROMISE
      promised(head[1], till)
    end
    if head[1] == me then
      return me, till
    end
    if till < 0 or till > now then
      local session, request, spec = apart(head[1])
      local way = inTheWay(spec, session)
      if #way > 0 then
        return nil, 0, way, head[1]
      end
      if till < 0 then
        till = now + PROMISE
        promised(head[1], till)
        send(session, 'w' .. request .. ' ' .. named(key, spec))
      end
      return head[1], till
    end
    redis.call('ZREM', queue, head[1])
  end
end

local function enqueue(me)
  local score = redis.call('ZSCORE', queue, me)
  if not score or tonumber(score) < 0 then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] -- it may be later than now, by another server's clock or one that stepped back
    redis.call('ZADD', queue, string.format('%.0f', math.max(time[1] * 1000000 + time[2], (last or 0) + 1)), me)
  end
  redis.call('PEXPIRE', queue, LIFE)
end
