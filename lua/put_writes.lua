-- put_writes: store the writes of one task next to their checkpoint.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  idle -> the thread's own; its deadline is moved
-- KEYS[2]  <prefix>:{T}:blobs        hash  only its deadline is moved
-- KEYS[3]  <prefix>:{T}:writes       hash  ns US id US task US idx -> write record
-- KEYS[4]  <prefix>:{T}:order        zset  only its deadline is moved
-- KEYS[5]  <prefix>:{T}:pending      zset  the same names, every score 0
-- ARGV[1]  idle       ms without a write until the thread expires; 0 = none: it keeps the deadline that it has
-- ARGV[2]  task       ns US id US task US, the part that all names share
-- ARGV[3..]           idx, record, idx, record ...; idx is negative for the special channels
--
-- Returns  how many of the writes were new: the first write of an idx >= 0 stands, whoever repeats it
-- Cost     O(w log n) in the w writes given and the n writes of the thread
-- Caller   redis_ckpt/_scripts.py: put_writes
--- @include lib/keys
--- @include lib/sliced
--- @include lib/deadline
local idle, task = ARGV[1], ARGV[2]
local first_pair = 3

local left = redis.call('PTTL', checkpoints)
if left == -2 then
  left = redis.call('PTTL', writes)
end
local new, members = 0, {}
for i = first_pair, #ARGV, 2 do
  local idx, record = ARGV[i], ARGV[i + 1]
  local name = task .. idx
  local command = string.sub(idx, 1, 1) == '-' and 'HSET' or 'HSETNX'
  if redis.call(command, writes, name, record) == 1 then
    new = new + 1
    members[#members + 1] = 0
    members[#members + 1] = name
  end
end
-- Who repeats a call may wait for replicas behind it, and WAIT speaks only of what its connection has written.
if new == 0 then
  local name = task .. ARGV[first_pair]
  redis.call('HSET', writes, name, redis.call('HGET', writes, name))
end
sliced('ZADD', pending, members)
written(idle_time(idle), left)
return new
