-- For how long a namespace whose format mark is missing must be in Grace, in ms: it is new, or its server restarted
-- empty. mode 'cold': it is new. 'full': a node has seen it formatted. 'look': whatever an earlier process of this server
-- granted is over when this one has been up for Q. A server that was promoted does not tell since when it is
-- the primary: Q.
local function fresh(mode)
  if mode == 'cold' then
    return 0
  end
  if mode == 'full' or OBSERVED or not GUARDED then -- for how long a server has been up is by its clock
    return Q
  end
  if string.find(redis.call('INFO', 'replication'), 'master_replid2:0*[^0%s]') then
    return Q
  end
  -- The age is a difference of two times without their fractions, so up to a second too much.
  local age = 1000 * tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))
  return math.max(0, math.min(Q, Q + 1000 - age))
end
