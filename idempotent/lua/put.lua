-- Put: stores a record unless one with a higher fence is there, or the job's next state of the same fence: a request that was
-- sent twice, or given up, may arrive late, and "started" is what each job puts first.
-- KEYS: record. ARGV: [1] fence in 20 digits, which compare as texts (a Lua number would lose some), [2] record, which begins
-- with bytes for its version (1) and state (1: started), [3] ms to live.
-- Answer: 1 if it was stored, 0 if not.
local was = redis.call('GETRANGE', KEYS[1], 0, 21)
local fence, began = string.sub(was, 1, 20), '\1\1'
if fence > ARGV[1] then
  return 0
end
if fence == ARGV[1] and string.sub(ARGV[2], 1, 2) == began and string.byte(was, 21) == 1 and string.sub(was, 21) ~= began then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', ARGV[3])
return 1
