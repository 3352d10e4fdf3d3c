-- forget: remove checkpoints with their writes and blobs, if the thread is still as the planner saw it.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record; epoch -> count of changes
-- KEYS[2]  <prefix>:{T}:blobs        hash  ns US channel US version -> blob record
-- KEYS[3]  <prefix>:{T}:writes       hash  ns US id US task US idx -> write record
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; MARK id US ns for other namespaces than the root
-- KEYS[5]  <prefix>:{T}:pending      zset  ns US id US task US idx, every score 0
-- ARGV[1]  idle       ms until writes expire that are left without any checkpoint; 0 = they stay
-- ARGV[2]  epoch      what `headers` answered when the plan was made
-- ARGV[3]  mode       count = remove nothing; part = remove; last = and nothing is orphaned any more when all is done
-- ARGV[4..]           groups: field (ns US id, or nothing), b, and b fields of blobs that go with it
--
-- Returns  the epoch now, how many groups were done, then what went: checkpoints, writes, blobs, and bytes of names
--          and values; or 0 alone if a checkpoint was put or removed since: then nothing was written
-- Cost     O(m log n), m at most 600 or one group; the caller sends the groups that were not done again
-- Caller   redis_ckpt/_scripts.py: forget
--- @include lib/keys
--- @include lib/order
--- @include lib/sliced
--- @include lib/deadline
local idle, epoch, mode = ARGV[1], ARGV[2], ARGV[3]
local first_group = 4
-- The bounds of one call. The memory of large values is freed at once, so bytes count too.
local MOST_NAMES, MOST_BYTES = 600, 4 * 1024 * 1024

if (redis.call('HGET', checkpoints, 'epoch') or '') ~= epoch then
  return 0
end
local fields, members, names, unused = {}, {}, {}, {}
local stored, gone, held, bytes, groups = 0, 0, 0, 0, 0

local function weigh(key, name)
  local size = redis.call('HSTRLEN', key, name)
  if size == 0 then return 0 end
  bytes = bytes + #name + size
  return 1
end

local at = first_group
while at <= #ARGV and #fields + #names + #unused < MOST_NAMES and bytes < MOST_BYTES do
  local field, count = ARGV[at], tonumber(ARGV[at + 1])
  if field ~= '' then
    fields[#fields + 1] = field
    members[#members + 1] = field
    local is_stored = weigh(checkpoints, field)
    stored, bytes = stored + is_stored, bytes + is_stored * #field
    if string.sub(field, 1, 1) ~= US then
      members[#members + 1] = MARK .. swapped(field)
      bytes = bytes + is_stored * (#field + 1)
    end
    for _, name in ipairs(redis.call('ZRANGEBYLEX', pending, '[' .. field .. US, '(' .. field .. ' ')) do
      names[#names + 1] = name
      gone, bytes = gone + weigh(writes, name), bytes + #name
    end
  end
  for i = at + 2, at + 1 + count do
    unused[#unused + 1] = ARGV[i]
    held = held + weigh(blobs, ARGV[i])
  end
  groups, at = groups + 1, at + 2 + count
end
if mode == 'count' then
  return {epoch, groups, stored, gone, held, bytes}
end

sliced('HDEL', checkpoints, fields)
sliced('ZREM', order, members)
sliced('HDEL', writes, names)
sliced('ZREM', pending, names)
sliced('HDEL', blobs, unused)
if mode == 'last' and at > #ARGV then
  redis.call('HDEL', checkpoints, 'orphans')
end
if epoch ~= '' and redis.call('EXISTS', order) == 0 then
  -- No checkpoint is left, so nothing refers to a blob, and a pin is over. Writes may have come before their
  -- checkpoint: they stay.
  redis.call('UNLINK', checkpoints, blobs)
  if idle ~= '0' and redis.call('PTTL', writes) == -1 then
    expire_in(tonumber(idle), {writes, pending})
  end
elseif epoch ~= '' then
  redis.call('HINCRBY', checkpoints, 'epoch', 1)
  epoch = redis.call('HGET', checkpoints, 'epoch')
end
return {epoch, groups, stored, gone, held, bytes}
