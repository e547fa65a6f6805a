-- Lock: takes a key for a session.
-- KEYS: record, queue. ARGV: [1] to [6] as in state.lua and queue.lua, [7] session, [8] request, [9] number of
-- tokens, [10] '1' to be queued, [11] session and [12] request of the hold to evict, or ''.
-- Answer: verdict, record, and if granted: epoch and seq of the first token, number of sessions that wait; if held: the
-- row; if promised: for how many ms, and to whom as a row.
enter()
local me = ARGV[7] .. ' ' .. ARGV[8]
if grace > 0 then
  return answer('in grace')
end
if owner ~= '' then
  return answer('owned')
end
if row then
  local session, request, e, s = string.match(row, '^(%S+) (%d+) (%d+) (%d+)$')
  if session == ARGV[7] and request == ARGV[8] then
    redis.call('ZREM', queue, me)
    return answer('granted', tonumber(e), tonumber(s), redis.call('ZCARD', queue))
  end
  if session ~= ARGV[11] or request ~= ARGV[12] then
    if ARGV[10] == '1' then
      enqueue(me)
    end
    send(session, 'a' .. request .. ' ' .. ARGV[3])
    return answer('held', row)
  end
  redis.call('HDEL', rec, 'r:' .. ARGV[3])
end
local next, till = promise(me)
local waiting = 0
if next == me then
  redis.call('ZREM', queue, me)
  waiting = redis.call('ZCARD', queue)
elseif next then
  if ARGV[10] == '1' then
    enqueue(me)
  end
  return answer('promised', till - now, next .. ' 0 0')
end
local block = tonumber(ARGV[9])
if seq > 4294967295 - block then
  advance('')
end
local first = seq + 1
seq, dirty = seq + block, true
redis.call('HSET', rec, 'r:' .. ARGV[3], string.format('%s %.0f %.0f', me, epoch, first))
return answer('granted', epoch, first, waiting)
