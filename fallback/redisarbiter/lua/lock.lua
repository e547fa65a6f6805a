-- Lock: takes a key for a session.
-- KEYS: record, queue. ARGV: [1] name of the hold, [2] session and request, [3] number of tokens, [4] '1' to be queued, [5] session
-- and request of the hold to evict, or '', [6] session whose waiters are to go, or ''.
-- Answer: that of quick.lua; or verdict, record, and if granted: epoch and seq of the first token, 1 if a session
-- waits; if held: the row, how many permits the key has by another hold, if that is not the request's number, else 0, and if only a
-- request that came before is in the way: its name, and its session and request as a row; if promised: for how many ms, and to whom as a row.
enter()
local id = ARGV[2]
local me = waiter(id)
if grace > 0 then
  return answer('in grace')
end
if owner ~= '' then
  redis.call('ZREM', queue, me) -- it goes to the owner
  return answer('owned')
end
if row and string.match(row, '^(%S+ %d+) ') == id then
  redis.call('ZREM', queue, me)
  local e, s = string.match(row, ' (%d+) (%d+)$')
  return answer('granted', tonumber(e), tonumber(s), contended(name, queue))
end
if ARGV[5] ~= '' then
  evict(ARGV[5])
end
if ARGV[6] ~= '' then
  for _, waiter in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    if string.match(waiter, '^%S+') == ARGV[6] then
      redis.call('ZREM', queue, waiter)
    end
  end
end
local session = string.match(id, '^%S+')
local way = inTheWay(spec, session)
local first = #way == 0 and before(spec, session) -- it comes before those that wait
local next, till, behind, ahead
if #way == 0 and not first then
  next, till, behind, ahead = promise(me)
  way = behind or way
end
if #way > 0 then
  if ARGV[4] == '1' then
    enqueue(me)
  end
  for _, x in ipairs(way) do
    local holder, request = string.match(x[2], '^(%S+) (%d+) ')
    send(holder, 'a' .. request .. ' ' .. x[1])
  end
  if ahead then
    local session, request, spec = apart(ahead)
    send(session, 'a' .. request .. ' ' .. named(key, spec)) -- it may have gone, and its request come again
    return answer('held', way[1][2], otherSize(way), named(key, spec), session .. ' ' .. request .. ' 0 0')
  end
  return answer('held', way[1][2], otherSize(way))
end
if first or next == me then
  redis.call('ZREM', queue, me)
elseif next then
  if ARGV[4] == '1' then
    enqueue(me)
  end
  local session, request = apart(next)
  return answer('promised', till - now, session .. ' ' .. request .. ' 0 0')
end
local block = tonumber(ARGV[3])
if seq > 4294967295 - block then
  advance('')
end
local first = seq + 1
seq, dirty = seq + block, true
row = string.format('%s %.0f %.0f', id, epoch, first)
redis.call('HSET', rec, 'r:' .. name, row)
if spec ~= '' then
  enterName(name)
  promise() -- the next one may fit as well
end
return answer('granted', epoch, first, contended(name, queue))
