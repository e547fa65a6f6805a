-- Restore: writes the rows of holds that are in force, unless they are there.
-- KEYS: record. ARGV: [1] '', then for each hold: name, epoch whose owner answers for it or 0, row.
-- Answer: 'granted', record, and a text with 1 (the row is there) or 0 (lost) for each hold.
redis.call('HDEL', rec, '') -- a first write that needs no memory: the rest is allowed at maxmemory, too
enter()
local n, fields = (#ARGV - 1) / 3, {}
for i = 1, n do
  fields[i] = 'r:' .. ARGV[3 * i - 1]
end
local rows, is = redis.call('HMGET', rec, unpack(fields)), {}
local function token(row)
  local e, s = string.match(row, '^%S+ %d+ (%d+) (%d+)$')
  return tonumber(e), tonumber(s)
end
-- Reports whether the row that was there has a lower token. In Grace it may have the same one, and the record may be an earlier epoch's.
local function may(at, row, was)
  local e, s = token(row)
  local we, ws = 0, 0
  if was then
    we, ws = token(was)
  end
  local lower = we < e or (we == e and ws < s)
  if grace == 0 then
    return lower
  elseif not lower and (we ~= e or ws ~= s) then
    return false
  end
  at = tonumber(at)
  if math.max(e, at) > epoch then -- a later epoch existed: the owner that this record names is history
    epoch, owner, seq, from, dirty = math.max(e, at), '', 0, 0, true
  end
  return true
end
local present = string.format('%.0f', epoch)
local write, names, verdicts, size = {}, {}, {}, 0
for i = 1, n do
  local field, at, row = fields[i], ARGV[3 * i], ARGV[3 * i + 1]
  local was = is[field] or rows[i]
  if was == row then
    verdicts[i] = '1'
  elseif grace == 0 and (at == '0' or at ~= present) then
    verdicts[i] = '0'
  elseif grace == 0 and not was and string.sub(row, -4) ~= ' 0 0' or may(at, row, was) then -- most have no row
    is[field] = row
    write[size + 1], write[size + 2] = field, row
    size = size + 2
    if string.byte(field, -1) == 255 then
      names[#names + 1] = ARGV[3 * i - 1]
    end
    verdicts[i] = '1'
  else
    verdicts[i] = '0'
  end
end
if size > 0 then
  redis.call('HSET', rec, unpack(write))
  for _, name in ipairs(names) do
    enterName(name)
  end
end
return answer('granted', table.concat(verdicts))
