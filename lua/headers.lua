-- headers: the heads (parent, run, root, deltas, references) of one page of checkpoints, for planning.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record; epoch -> count of changes; orphans; idle
-- KEYS[2]  <prefix>:{T}:blobs        hash  not read
-- KEYS[3]  <prefix>:{T}:writes       hash  not read
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; MARK id US ns for other namespaces than the root
-- KEYS[5]  <prefix>:{T}:pending      zset  not read
-- ARGV[1]  most       checkpoints a page, of each range
-- ARGV[2]  own_low    the range of members ns US id to read
-- ARGV[3]  own_high
-- ARGV[4]  all_low    the range of members MARK id US ns to read after it
-- ARGV[5]  all_high
--
-- Returns  epoch, orphans, the thread's own idle time, the greatest id of the root, the greatest id of the other namespaces (nothing where
--          there is none), then field, header of each checkpoint (false where the record is gone)
-- Cost     O(log n + most)
-- Caller   redis_ckpt/_scripts.py: headers
--- @include lib/keys
--- @include lib/order
--- @include lib/sliced
--- @include lib/header
local most, own_low, own_high, all_low, all_high = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local fields = redis.call('ZRANGEBYLEX', order, own_low, own_high, 'LIMIT', 0, most)
for _, member in ipairs(redis.call('ZRANGEBYLEX', order, all_low, all_high, 'LIMIT', 0, most)) do
  fields[#fields + 1] = swapped(string.sub(member, 2))
end
local root_top, other_top = greatest_ids()
local reply = {
  redis.call('HGET', checkpoints, 'epoch') or '',
  redis.call('HGET', checkpoints, 'orphans') or '',
  redis.call('HGET', checkpoints, 'idle') or '',
  root_top,
  other_top,
}
local records = sliced('HMGET', checkpoints, fields)
for i = 1, #fields do
  local record = records[i]
  if record then
    local _, _, _, _, _, body = header(record)
    record = string.sub(record, 1, (body or 2) - 1)
  end
  reply[#reply + 1] = fields[i]
  reply[#reply + 1] = record
end
return reply
