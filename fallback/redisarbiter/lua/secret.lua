-- FirstSecret, and Rotate: the secrets of the namespace.
-- KEYS: sessions. ARGV: [1] the secret, 64 hexadecimal digits, [2] 'rotate' to put it before the others; or '', and then
-- [1] is all of them, as they are kept, in case there are none.
-- Answer: the secrets.
if not enter() then
  return ''
end
local all = f[5] or ''
local was = all
if ARGV[2] == 'rotate' then
  if not string.find(all, ARGV[1], 1, true) then
    local last = string.match(all, '^%x+ %d+ %x+ %d+') or all
    all = ARGV[1] .. ' ' .. int(now) .. ' ' .. last
  end
elseif all == '' then
  all = ARGV[1]
end
if all ~= was then
  redis.call('HSET', tab, 'k', all)
end
return all
