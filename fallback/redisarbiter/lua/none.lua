-- What state.lua says, for a script that reads many records one after another: nothing yet.
local rec, seen, record
