-- headers: the heads (parent, run, root, deltas, references) of one page of checkpoints, for planning.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record; epoch -> count of changes; orphans; idle
-- KEYS[2]  <prefix>:{T}:blobs        hash  GS ns US channel US version -> delta
-- KEYS[3]  <prefix>:{T}:writes       hash  only counted
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; MARK id US ns for other namespaces than the root; GS ns US id
-- KEYS[5]  <prefix>:{T}:pending      zset  not read
-- ARGV[1]  most       checkpoints a page, of each range
-- ARGV[2]  low        the range of members to read
-- ARGV[3]  high
-- ARGV[4]  more_low   the range to read after it
-- ARGV[5]  more_high
--
-- Returns  epoch, orphans, the thread's own idle time, how many writes it has, the greatest ids of the root and of
--          the other namespaces (nothing where there is none), m, then m times member, header of a checkpoint (false
--          where the record is gone), then blob, base of each blob of these checkpoints, and of what it is built on,
--          that is a delta
-- Cost     O(log n + most * c) in the c channels of a checkpoint
-- Caller   redis_ckpt/_scripts.py: headers
--- @include lib/keys
--- @include lib/order
--- @include lib/sliced
--- @include lib/header
--- @include lib/blobs
local most, low, high, more_low, more_high = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local members = redis.call('ZRANGEBYLEX', order, low, high, 'LIMIT', 0, most)
for _, member in ipairs(redis.call('ZRANGEBYLEX', order, more_low, more_high, 'LIMIT', 0, most)) do
  members[#members + 1] = member
end
local fields = {}
for i = 1, #members do
  fields[i] = field_of(members[i])
end
local root_top, other_top = greatest_ids()
local orphans = redis.call('HGET', checkpoints, 'orphans') or ''
local reply = {
  redis.call('HGET', checkpoints, 'epoch') or '',
  orphans,
  redis.call('HGET', checkpoints, 'idle') or '',
  redis.call('HLEN', writes),
  root_top,
  other_top,
  #members,
}
local met, bases = {}, {}
local function follow(name)
  while name and not met[name] do
    met[name] = true
    local _, base = delta(name)
    if base then
      bases[#bases + 1] = name
      bases[#bases + 1] = base
    end
    name = base
  end
end
for name in string.gmatch(orphans, '[^\30]+') do
  follow(name)
end
local records = sliced('HMGET', checkpoints, fields)
for i = 1, #fields do
  local record = records[i]
  if record then
    local _, _, _, _, refs, body = header(record)
    record = string.sub(record, 1, (body or 2) - 1)
    local ns = string.match(fields[i], '^([^\31]*\31)')
    for ref in string.gmatch(refs or '', '[^\30]+') do
      follow(ns .. ref)
    end
  end
  reply[#reply + 1] = members[i]
  reply[#reply + 1] = record
end
for i = 1, #bases do
  reply[#reply + 1] = bases[i]
end
return reply
