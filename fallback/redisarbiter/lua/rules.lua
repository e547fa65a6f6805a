-- The rules of a record: its parts, what time it is, Partition.enter, Partition.advance, and its writing.
local epoch, seq, grace, from, revoked, owner, dirty
local changed -- Partition.Changed, where it is to be written
local run -- process(), where it is to be written
local function parse()
  epoch, seq, grace, from, revoked, owner, dirty, run, changed = 0, 0, 0, 0, 0, '', false, nil, nil
  if record then
    epoch, seq, grace, from, revoked, owner = string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    epoch, seq, grace = tonumber(epoch), tonumber(seq), tonumber(grace)
  end
end
parse()
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The record as text. Lua would write large numbers with an exponent.
local function text()
  return string.format('%.0f %.0f %.0f %s %s %s', epoch, seq, grace, from, revoked, owner)
end

local function save()
  if run then
    redis.call('HSET', rec, 'i', server, 'u', run, 'm', text())
    if changed then
      redis.call('HSET', rec, 'e', changed)
    end
  elseif dirty then
    redis.call('HSET', rec, 'm', text())
  end
end

local function advance(to)
  local least = redis.call('HGET', rec, 'e') -- a Grace has ended early: what the clock counts as, at least
  if least then
    redis.call('HDEL', rec, 'e')
  end
  local clock = math.floor(math.max(now, tonumber(least or 0)) / 1000) - 946684800
  epoch = math.max(epoch + 1, math.min(clock, 2147483647)) -- bounded: see enter
  seq, owner, from, dirty = 0, to, 0, true
end

-- Partition.endGrace; or its early end, with the least time that the next epoch is of.
local function finish(least)
  grace, dirty, changed = 0, true, nil
  if least then
    redis.call('HSET', rec, 'e', string.format('%.0f', least))
  else
    redis.call('HDEL', rec, 'e')
  end
  if owner == '' then
    advance('')
  end
end

local function enter()
  local clock = math.floor(now / 1000) - 946684800
  if epoch >= 2147483647 then -- Partition.Refuses
    error('NOEPOCH')
  elseif clock > 2147483647 or (epoch > 0 and clock > epoch + 315360000) then
    error('FARCLOCK it says ' .. clock .. ' s since 2000, the last epoch is ' .. epoch)
  end
  if seen ~= server then -- another one, or another name, or the record is lost
    run = process()
    if not renamed(redis.call('HGET', rec, 'u'), run) then
      grace = begun(time, Q, grace)
      changed = string.format('%.0f', grace)
    elseif grace == 0 and owner == '' then
      advance('')
    end
  end
  if OBSERVED then
    if grace == 0 and epoch == 0 then -- it is new
      finish()
    end
    return
  end
  if grace > now + Q then -- the clock stepped back
    grace, dirty = now + Q, true
    redis.call('HDEL', rec, 'e')
  end
  if grace > 0 and now >= grace then
    finish()
  end
end

-- Writes what changed and makes an answer: verdict, the record, and what else there is.
local function answer(verdict, ...)
  save()
  local left, flag = 0, 0
  if OBSERVED then
    left = grace
  elseif grace > 0 then
    left = grace - now
  end
  if owner ~= '' and tonumber(revoked) == epoch then
    flag = 1
  end
  return {verdict, owner, epoch, left, flag, ...}
end
