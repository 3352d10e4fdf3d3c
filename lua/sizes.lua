-- sizes: how large records are.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record
-- KEYS[2]  <prefix>:{T}:blobs        hash  ns US channel US version -> blob record; with GS before it: a delta
-- KEYS[3]  <prefix>:{T}:writes       hash  ns US id US task US idx -> write record
-- KEYS[4]  <prefix>:{T}:order        zset  not read
-- KEYS[5]  <prefix>:{T}:pending      zset  not read
-- ARGV[1]  part       which hash: 1, 2 or 3
-- ARGV[2..]           its fields
--
-- Returns  the size of each value in bytes, and one more where GS stands before its name; 0 where it is gone
-- Cost     O(n) in the fields given
-- Caller   redis_ckpt/_scripts.py: sizes
--- @include lib/keys
local part = tonumber(ARGV[1])

local key, reply = ({checkpoints, blobs, writes})[part], {}
for i = 2, #ARGV do
  local size = redis.call('HSTRLEN', key, ARGV[i])
  if size == 0 and key == blobs then
    size = redis.call('HSTRLEN', key, GS .. ARGV[i])
    size = size > 0 and size + #GS or 0
  end
  reply[i - 1] = size
end
return reply
