-- Get: reads a record. A script, because GET may be sent to a replica, which lags behind, and scripts are not.
-- KEYS: record. Answer: fence in 20 digits and record, or nil.
return redis.call('GET', KEYS[1])
