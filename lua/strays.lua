-- strays: the checkpoints that have pending writes but no record, one page of them.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record
-- KEYS[2]  <prefix>:{T}:blobs        hash  not read
-- KEYS[3]  <prefix>:{T}:writes       hash  not read
-- KEYS[4]  <prefix>:{T}:order        zset  not read
-- KEYS[5]  <prefix>:{T}:pending      zset  ns US id US task US idx, every score 0
-- ARGV[1]  after      the checkpoint (ns US id) behind which the page begins; nothing = at the first
-- ARGV[2]  most       checkpoints with writes to look at
--
-- Returns  the last checkpoint looked at, or nothing at the end; then ns US id of each without a record
-- Cost     O(m log n) in the m checkpoints looked at and the n writes of the thread
-- Caller   redis_ckpt/_scripts.py: strays
--- @include lib/keys
local after, most = ARGV[1], tonumber(ARGV[2])

local reply = {''}
while true do
  local low = after == '' and '-' or '(' .. after .. ' '
  local name = redis.call('ZRANGEBYLEX', pending, low, '+', 'LIMIT', 0, 1)[1]
  if not name then return reply end
  if most == 0 then break end
  most = most - 1
  after = string.match(name, '^[^\31]*\31[^\31]*')
  if redis.call('HEXISTS', checkpoints, after) == 0 then
    reply[#reply + 1] = after
  end
end
reply[1] = after
return reply
