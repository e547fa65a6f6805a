-- The channel of a session's messages, which is named after the namespace, as the record is.
local function channel(session)
  return string.match(KEYS[1], '^(.*):p%d+}$') .. ':c}:' .. session
end

