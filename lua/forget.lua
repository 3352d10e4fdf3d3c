-- forget: remove checkpoints with their writes, and blobs, if the thread is still as the planner saw it.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record; epoch -> count of changes
-- KEYS[2]  <prefix>:{T}:blobs        hash  ns US channel US version -> blob record
-- KEYS[3]  <prefix>:{T}:writes       hash  ns US id US task US idx -> write record
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; MARK id US ns for other namespaces than the root
-- KEYS[5]  <prefix>:{T}:pending      zset  ns US id US task US idx, every score 0
-- ARGV[1]  deadline   ms since the epoch; 0 = leave the keys as they are
-- ARGV[2]  epoch      what `headers` answered when the plan was made
-- ARGV[3]  last       1 = the plan ends here: nothing is orphaned any more
-- ARGV[4]  c          how many checkpoints to remove
-- ARGV[5..]           their fields, ns US id, then the fields of the blobs to remove
--
-- Returns  the new epoch, or 0 if a checkpoint was put or removed since: then nothing was written
-- Cost     O((c + w + b) log n) in what is removed; the caller gives a few hundred at a time
-- Caller   redis_ckpt/_scripts.py: forget
--- @include lib/keys
--- @include lib/order
--- @include lib/sliced
--- @include lib/deadline
local deadline, epoch, last, count = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local first_field, first_blob = 5, 5 + count

if redis.call('HGET', checkpoints, 'epoch') ~= epoch then
  return 0
end
local fields, members, names, unused = {}, {}, {}, {}
for i = first_field, first_blob - 1 do
  local field = ARGV[i]
  fields[#fields + 1] = field
  members[#members + 1] = field
  if string.sub(field, 1, 1) ~= US then
    members[#members + 1] = MARK .. swapped(field)
  end
  for _, name in ipairs(redis.call('ZRANGEBYLEX', pending, '[' .. field .. US, '(' .. field .. ' ')) do
    names[#names + 1] = name
  end
end
for i = first_blob, #ARGV do
  unused[#unused + 1] = ARGV[i]
end
sliced('HDEL', checkpoints, fields)
sliced('ZREM', order, members)
sliced('HDEL', writes, names)
sliced('ZREM', pending, names)
sliced('HDEL', blobs, unused)
if redis.call('EXISTS', order) == 0 then
  -- No checkpoint is left, so nothing refers to a blob. Writes may have come before their checkpoint: they stay.
  redis.call('UNLINK', checkpoints, blobs)
  return epoch
end
if last then redis.call('HDEL', checkpoints, 'orphans') end
set_deadline(deadline)
redis.call('HINCRBY', checkpoints, 'epoch', 1)
return redis.call('HGET', checkpoints, 'epoch')
