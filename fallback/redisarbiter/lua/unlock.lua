-- Unlock: removes exactly the row named, in any state, and the waiter of that name; a key that became free wakes one,
-- and the partition's owner is told.
-- KEYS: record, queue. ARGV: [1] name of the hold, [2] session and request. Answer: 1 if a row was removed.
enter()
local me = ARGV[2]
local removed = 0
if row and string.match(row, '^(%S+ %d+) ') == me then
  removeRow(name)
  removed = 1
  if owner ~= '' then
    send(owner, 'f' .. me .. ' ' .. name)
  end
end
redis.call('ZREM', queue, waiter(me)) -- needs no memory, so what follows is allowed at maxmemory, too
if not row and grace == 0 and owner == '' then
  promise()
end
save()
return removed
