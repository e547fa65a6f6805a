-- The usual case of Unlock, before anything else is even defined: the row named is there, is exclusive, and no session waits.
-- Answer: 1.
if seen == server and row and spec == '' then
  local id = string.match(row, '^(%S+ %d+) ')
  local epoch = string.match(record, '^(%d+) %d+ 0 %d+ %d+ $') -- not in Grace, no owner
  if id == ARGV[2] and epoch and epoch + 0 < 2147483647 and redis.call('EXISTS', KEYS[2]) == 0 then
    return redis.call('HDEL', rec, 'r:' .. name)
  end
end
