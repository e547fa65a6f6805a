-- What does not change when a server merely takes another name, as when a replication backlog is made or freed: its process. ''
-- if it does not tell.
local told
local function process()
  if not told then
    told = GUARDED and (string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '') or '-'
  end
  return told
end

-- Moment.renamed: the server is the one of that process still, and did not go on with the data of another one when it took its
-- name. A promotion leaves the name before it as the second one, as a start from a dump may; else that is all zeros.
local function renamed(was, run)
  return was == run and run ~= '' and string.find(info, 'master_replid2:' .. string.rep('0', 40), 1, true) ~= nil
end
