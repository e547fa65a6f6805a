-- Names of holds, and which of them may be held beside each other: mode.go.
local function named(key, spec)
  if spec == '' then
    return key
  end
  return key .. '\0' .. spec .. '\0\255'
end

local function mode(spec)
  local kind = string.sub(spec, 1, 1)
  if kind == 'p' then
    local n, of, holder = string.match(spec, '^p(%d+)/(%d+)/(.*)$')
    n, of = tonumber(n), tonumber(of)
    if n and 0 < n and n <= of and of <= 4294967295 then
      return kind, n, of, string.find(holder, '/', 1, true) and holder
    end
  elseif kind == 's' or kind == 'd' then -- Shared, Downgraded
    return 's', 0, 0
  end
  return '?', 0, 0 -- exclusive, or of a later version: beside no other
end

-- Mode.Beside.
local function beside(spec, others)
  local kind, sum, of, block = mode(spec)
  local largest = {} -- of each block
  if block then
    largest[block] = sum
  end
  for _, other in ipairs(others) do
    local k, n, o, b = mode(other)
    sum = sum + n
    if b then
      sum = sum - math.min(largest[b] or 0, n)
      largest[b] = math.max(largest[b] or 0, n)
    end
    if k ~= kind or o ~= of or (kind ~= 's' and kind ~= 'p') then
      return false
    end
  end
  return #others == 0 or kind == 's' or sum <= of
end

-- Enters a name that has a row now at its key.
local function enterName(entered)
  local at, what = split(entered)
  if what == '' then
    return
  end
  local all = redis.call('HGET', rec, 'n:' .. at)
  for s in string.gmatch(all or '', '%S+') do
    if s == what then
      return
    end
  end
  all = all and (all .. ' ' .. what) or what
  redis.call('HSET', rec, 'n:' .. at, all)
  specs = all -- of use to Lock only, which enters names of its key
end

-- Removes a row of the key that ARGV[1] says.
local function removeRow(removed)
  redis.call('HDEL', rec, 'r:' .. removed)
  if removed == name then
    row = false
  end
  local _, what = split(removed)
  if what == '' then
    return
  end
  local rest = {}
  for s in string.gmatch(specs or '', '%S+') do
    if s ~= what then
      rest[#rest + 1] = s
    end
  end
  if #rest > 0 then
    specs = table.concat(rest, ' ')
    redis.call('HSET', rec, 'n:' .. key, specs)
  else
    specs = false
    redis.call('HDEL', rec, 'n:' .. key)
  end
end

-- The row of the name of the key that says this besides.
local function rowOf(what)
  if what == spec then
    return row
  end
  return redis.call('HGET', rec, 'r:' .. named(key, what))
end

-- Partition.evict, of the key that ARGV[1] says.
local function evict(hold)
  local all = {''}
  for s in string.gmatch(specs or '', '%S+') do
    all[#all + 1] = s
  end
  for _, s in ipairs(all) do
    local r = rowOf(s)
    if r and string.match(r, '^(%S+ %d+) ') == hold then
      removeRow(named(key, s))
    end
  end
end

-- Partition.downgrades.
local function downgrades(what, session)
  local r = string.sub(what, 1, 1) == 'd' and rowOf('')
  return r and (string.match(r, '^%S+') == session)
end

-- Partition.before.
local function before(what, session)
  local _, n, _, block = mode(what)
  if not block then
    return downgrades(what, session)
  end
  for s in string.gmatch(specs or '', '%S+') do
    local _, m, _, b = mode(s)
    if b == block and n <= m then -- one of another number would be in the way
      return true
    end
  end
  return false
end

-- Partition.inTheWay, of a name of the key that ARGV[1] says: names and rows.
local function inTheWay(what, session)
  local way, names, rows, modes = {}, {}, {}, {}
  local mine = rowOf(what)
  if mine then
    way[1] = {named(key, what), mine}
  end
  local function look(s)
    local r = s ~= what and rowOf(s)
    if r then
      names[#names + 1], rows[#rows + 1], modes[#modes + 1] = named(key, s), r, s
    end
  end
  if not downgrades(what, session) then
    look('')
  end
  for s in string.gmatch(specs or '', '%S+') do
    look(s)
  end
  if beside(what, modes) then
    return way
  end
  for i, s in ipairs(modes) do
    if mode(what) == 'p' or not beside(what, {s}) then
      way[#way + 1] = {names[i], rows[i]}
    end
  end
  return way
end

-- How many permits a hold in the way says, 0 if as many as the name in ARGV[1], or one of them is of another mode.
local function otherSize(way)
  local kind, _, of = mode(spec)
  for _, x in ipairs(way) do
    local _, what = split(x[1])
    local k, _, o = mode(what)
    if kind == 'p' and k == 'p' and o ~= of then
      return o
    end
  end
  return 0
end
