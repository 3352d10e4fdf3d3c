-- drop: remove a whole thread, if it is still as the caller saw it.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  epoch -> count of changes; idle
-- KEYS[2]  <prefix>:{T}:blobs        hash
-- KEYS[3]  <prefix>:{T}:writes       hash
-- KEYS[4]  <prefix>:{T}:order        zset
-- KEYS[5]  <prefix>:{T}:pending      zset
-- ARGV[1]  epoch      what `headers` answered; nothing = there was no checkpoint
-- ARGV[2]  idle       the thread's own idle time that `headers` answered; nothing = it had none
-- ARGV[3]  count      the number of writes that it answered
--
-- Returns  1, or 0 if a checkpoint was put or removed, a write came or the idle time was set since: then nothing was
--          written
-- Cost     O(1), the memory is freed in the background
-- Caller   redis_ckpt/_scripts.py: drop
--- @include lib/keys
local epoch, idle, count = ARGV[1], ARGV[2], tonumber(ARGV[3])

local now = redis.call('HMGET', checkpoints, 'epoch', 'idle')
if (now[1] or '') ~= epoch or (now[2] or '') ~= idle or redis.call('HLEN', writes) ~= count then return 0 end
redis.call('UNLINK', checkpoints, blobs, writes, order, pending)
return 1
