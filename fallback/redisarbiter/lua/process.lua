-- What does not change when a server merely takes another name, as when a replication backlog is made or freed: its process. ''
-- if it does not tell.
local told
local function process()
  if not told then
    told = GUARDED and (string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '') or '-'
  end
  return told
end

-- A Grace of some ms as it is stored, from the time given: when it ends (ms). Without a clock it is the microsecond in which it began, which is
-- a name: the next one has another. Processes count its length (observe.go).
local function begun(time, length, was)
  if not OBSERVED then
    return time[1] * 1000 + math.floor(time[2] / 1000) + length
  elseif length == 0 then
    return 0
  end
  return math.max(time[1] * 1000000 + time[2], (was or 0) + 1)
end

-- Moment.renamed: the server is the one of that process still, and did not go on with the data of another one when it took its
-- name. A promotion leaves the name before it as the second one, as a start from a dump may; else that is all zeros.
local function renamed(was, run)
  return was == run and run ~= '' and string.find(info, 'master_replid2:' .. string.rep('0', 40), 1, true) ~= nil
end
