-- expire: give a thread an idle time of its own, pin it, or take either back.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  idle -> the thread's own, in ms; 0 = pinned
-- KEYS[2]  <prefix>:{T}:blobs        hash  only its deadline is moved, and that of the others
-- KEYS[3]  <prefix>:{T}:writes       hash
-- KEYS[4]  <prefix>:{T}:order        zset
-- KEYS[5]  <prefix>:{T}:pending      zset
-- ARGV[1]  own        ms without a write until the thread expires; 0 = never; nothing = no longer its own
-- ARGV[2]  idle       the caller's, which counts then
--
-- Returns  1, or 0 if the thread has no checkpoints: then nothing was written
-- Cost     O(1)
-- Caller   redis_ckpt/_scripts.py: expire
--- @include lib/keys
--- @include lib/deadline
local own, idle = ARGV[1], ARGV[2]

if redis.call('EXISTS', checkpoints) == 0 then return 0 end
if own == '' then
  redis.call('HDEL', checkpoints, 'idle')
else
  redis.call('HSET', checkpoints, 'idle', own)
end
settle(idle, {checkpoints, blobs, writes, order, pending})
return 1
