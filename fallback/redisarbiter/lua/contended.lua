-- Partition.contended: 1 if a session waits that has to wait for a hold of the name, else 0. Shared ones do not wait for shared ones.
local function contended(name, queue)
  local _, spec = split(name)
  if mode(spec) ~= 's' then
    return math.min(redis.call('ZCARD', queue), 1)
  end
  for _, w in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    if mode(string.match(w, '^%S+ %d+ ?(%S*)$')) ~= 's' then
      return 1
    end
  end
  return 0
end
