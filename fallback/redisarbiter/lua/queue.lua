-- The queue of a contended key. KEYS[2] a sorted set of 'session request'. The score is the time of arrival in
-- microseconds or, for the waiter that the free key is promised to, minus the end of the promise in ms: so that one is
-- first. Constants: PROMISE how long a promise holds (ms), LIFE of a queue
-- that nobody asks about any more (ms).
local queue = KEYS[2]

local function send(session, text)
  redis.call('PUBLISH', channel(session), text)
end

local function promised(waiter, till)
  redis.call('ZADD', queue, string.format('%.0f', -till), waiter)
end

-- Finds the waiter that a free key is for, wakes it unless it is me, drops those that were woken and did not come.
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
    if head[1] == me or till > now then
      return head[1], till
    end
    if till < 0 then
      till = now + PROMISE
      promised(head[1], till)
      local session, request = string.match(head[1], '^(%S+) (%d+)$')
      send(session, 'w' .. request .. ' ' .. key)
      return head[1], till
    end
    redis.call('ZREM', queue, head[1])
  end
end

local function enqueue(me)
  local score = redis.call('ZSCORE', queue, me)
  if not score or tonumber(score) < 0 then
    redis.call('ZADD', queue, string.format('%.0f', time[1] * 1000000 + time[2]), me)
  end
  redis.call('PEXPIRE', queue, LIFE)
end
