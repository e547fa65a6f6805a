-- What this server calls itself. Constants, which are put before every script: GUARDED whether that can be read, Q the
-- length of Grace in ms, and those of queue.lua.
local server, info = '-', ''
if GUARDED then
  -- 40 digits. A plain search is much faster than a pattern.
  info = redis.call('INFO', 'replication')
  local i = string.find(info, 'master_replid:', 1, true)
  server = string.sub(info, i + 14, i + 53)
end
