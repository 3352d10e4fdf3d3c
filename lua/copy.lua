-- copy: copy the five keys of a thread to another thread that has no checkpoints.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  the source
-- KEYS[2]  <prefix>:{T}:blobs        hash
-- KEYS[3]  <prefix>:{T}:writes       hash
-- KEYS[4]  <prefix>:{T}:order        zset
-- KEYS[5]  <prefix>:{T}:pending      zset
-- KEYS[6..10]                        the target's, in the same order
-- ARGV[1]  idle       ms until the target expires, if the source has no idle time of its own; 0 = never
-- ARGV[2]  epoch      the target's; a target that has it is the work of this very call, whose answer was lost
--
-- Returns  1 copied, 0 the source has no checkpoints, -1 the target has checkpoints; nothing is written unless 1
-- Cost     O(n), one COPY a key
-- Caller   redis_ckpt/_scripts.py: copy
--- @include lib/keys
--- @include lib/deadline
local idle, epoch = ARGV[1], ARGV[2]
local source = {checkpoints, blobs, writes, order, pending}
local target = {KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]}

if redis.call('EXISTS', order, checkpoints) == 0 then return 0 end
if redis.call('EXISTS', target[1], target[4]) > 0 then
  return redis.call('HGET', target[1], 'epoch') == epoch and 1 or -1
end
for i = 1, #source do
  redis.call('UNLINK', target[i])
  redis.call('COPY', source[i], target[i])
end
settle(idle, target)
redis.call('HSET', target[1], 'epoch', epoch)
return 1
