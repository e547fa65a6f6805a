-- Lock: takes a key for a session.
-- KEYS: record, queue. ARGV: [1] key, [2] session and request, [3] number of tokens, [4] '1' to be queued, [5] session
-- and request of the hold to evict, or ''.
-- Answer: that of quick.lua; or verdict, record, and if granted: epoch and seq of the first token, number of sessions
-- that wait; if held: the row; if promised: for how many ms, and to whom as a row.
enter()
local me = ARGV[2]
if grace > 0 then
  return answer('in grace')
end
if owner ~= '' then
  return answer('owned')
end
if row then
  local id, e, s = string.match(row, '^(%S+ %d+) (%d+) (%d+)$')
  if id == me then
    redis.call('ZREM', queue, me)
    return answer('granted', tonumber(e), tonumber(s), redis.call('ZCARD', queue))
  end
  if id ~= ARGV[5] then
    if ARGV[4] == '1' then
      enqueue(me)
    end
    local session, request = string.match(id, '^(%S+) (%d+)$')
    send(session, 'a' .. request .. ' ' .. key)
    return answer('held', row)
  end
  redis.call('HDEL', rec, 'r:' .. key)
end
local next, till = promise(me)
local waiting = 0
if next == me then
  redis.call('ZREM', queue, me)
  waiting = redis.call('ZCARD', queue)
elseif next then
  if ARGV[4] == '1' then
    enqueue(me)
  end
  return answer('promised', till - now, next .. ' 0 0')
end
local block = tonumber(ARGV[3])
if seq > 4294967295 - block then
  advance('')
end
local first = seq + 1
seq, dirty = seq + block, true
redis.call('HSET', rec, 'r:' .. key, string.format('%s %.0f %.0f', me, epoch, first))
return answer('granted', epoch, first, waiting)
