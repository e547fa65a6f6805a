-- Restore: writes the rows of holds that are in force, unless they are there.
-- KEYS: record. ARGV: [1] '', then for each hold: name, epoch whose owner answers for it or 0, row.
-- Answer: 'granted', record, and a text with 1 (the row is there) or 0 (lost) for each hold.
redis.call('HDEL', rec, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
enter()
local fields = {}
for i = 2, #ARGV, 3 do
  fields[#fields + 1] = 'r:' .. ARGV[i]
end
local rows, is = redis.call('HMGET', rec, unpack(fields)), {}
for i, field in ipairs(fields) do
  is[field] = rows[i]
end
local function token(row)
  local e, s = string.match(row, ' (%d+) (%d+)$')
  return tonumber(e), tonumber(s)
end
local write, names, verdicts = {}, {}, {}
for i, field in ipairs(fields) do
  local at, row, was = tonumber(ARGV[3 * i]), ARGV[3 * i + 1], is[field]
  verdicts[i] = '1'
  if was ~= row then
    local e, s = token(row)
    local we, ws = 0, 0
    if was then
      we, ws = token(was)
    end
    local lower = we < e or (we == e and ws < s)
    if (grace > 0 and (lower or (we == e and ws == s))) or (grace == 0 and at ~= 0 and at == epoch and lower) then
      is[field] = row
      write[#write + 1] = field
      write[#write + 1] = row
      names[#names + 1] = ARGV[3 * i - 1]
      if grace > 0 and math.max(e, at) > epoch then -- a later epoch existed: the owner that this record names is history
        epoch, owner, seq, from, dirty = math.max(e, at), '', 0, 0, true
      end
    else
      verdicts[i] = '0'
    end
  end
end
if #write > 0 then
  redis.call('HSET', rec, unpack(write))
  for _, name in ipairs(names) do
    enterName(name)
  end
end
return answer('granted', table.concat(verdicts))
