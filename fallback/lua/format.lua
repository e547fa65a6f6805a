-- Format: creates the record of a partition of a new namespace.
-- KEYS: record. ARGV: [1], [2] as in state.lua, [4] mode of fresh.lua. Answer: 1.
if not seen then
  grace, seen, dirty = now + fresh(ARGV[4]), server, true
end
enter()
save()
return 1
