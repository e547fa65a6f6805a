-- The usual case of Lock, before anything else is even defined: the hold is exclusive, nobody holds the key, nobody waits.
-- Answer: epoch and seq of the first token, as one text.
if seen == server and not row and not specs and spec == '' then
  local epoch, seq, rest = string.match(record, '^(%d+) (%d+)( 0 %d+ %d+ )$') -- not in Grace, no owner
  if epoch and epoch + 0 < 2147483647 and seq + ARGV[3] <= 4294967295 and redis.call('EXISTS', KEYS[2]) == 0 then
    local token = epoch .. ' ' .. (seq + 1)
    redis.call('HSET', rec, 'm', epoch .. ' ' .. (seq + ARGV[3]) .. rest, 'r:' .. key, ARGV[2] .. ' ' .. token)
    return token
  end
end
