-- Witness: tells of a token that was given out. If the record is below it, the server has old data.
-- KEYS: record. ARGV: [1] '', [2] epoch and [3] seq of the token. Answer: verdict, record.
redis.call('HDEL', rec, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
enter()
local e, s = tonumber(ARGV[2]), tonumber(ARGV[3])
if e <= 2147483647 and (e > epoch or (e == epoch and owner == '' and s > seq)) then
  if grace == 0 then
    grace, changed = begun(time, Q), nil
    redis.call('HDEL', rec, 'e')
  end
  epoch, owner, seq, from, dirty = e, '', s, 0, true -- the owner that this record names is history
end
return answer('granted')
