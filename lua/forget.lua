-- forget: remove checkpoints, or make ancestors of them, if the thread is still as the planner saw it.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record; epoch -> count of changes
-- KEYS[2]  <prefix>:{T}:blobs        hash  ns US channel US version -> blob record; with GS before it: a delta
-- KEYS[3]  <prefix>:{T}:writes       hash  ns US id US task US idx -> write record
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; MARK id US ns for other namespaces than the root; GS ns US id
-- KEYS[5]  <prefix>:{T}:pending      zset  the names of the writes
-- ARGV[1]  idle       ms until writes expire that are left without any checkpoint; 0 = they stay
-- ARGV[2]  epoch      what `headers` answered when the plan was made
-- ARGV[3]  mode       count = remove nothing; part = remove; last = and nothing is orphaned any more when all is done
-- ARGV[4..]           groups: field (ns US id, or nothing), b, and b fields of blobs that go with it; for an ancestor
--                     GS ns US id, b, the refs that it keeps, and the b fields
--
-- Returns  the epoch now, groups done, then what went: checkpoints that readers saw, writes, blobs, bytes of names
--          and values; or 0 alone if a checkpoint was put or removed since: then nothing was written
-- Cost     O(m log n), m at most 150 or one group; the caller sends again what was not done
-- Caller   redis_ckpt/_scripts.py: forget
--- @include lib/keys
--- @include lib/order
--- @include lib/sliced
--- @include lib/deadline
--- @include lib/header
local idle, epoch, mode = ARGV[1], ARGV[2], ARGV[3]
-- The bounds of one call. The memory of large values is freed at once, so bytes count too.
local MOST_NAMES, MOST_BYTES = 150, 4 * 1024 * 1024

if (redis.call('HGET', checkpoints, 'epoch') or '') ~= epoch then
  return 0
end
local fields, members, names, unused, records, ancestors = {}, {}, {}, {}, {}, {}
local gone, gone_writes, gone_blobs, bytes, groups = 0, 0, 0, 0, 0

local function weigh(key, name)
  local size = redis.call('HSTRLEN', key, name)
  if size == 0 then return 0 end
  bytes = bytes + #name + size
  return 1
end

-- Takes a checkpoint from what readers see.
local function unlist(field)
  members[#members + 1] = field
  local listed = redis.call('ZSCORE', order, field) and 1 or 0
  gone, bytes = gone + listed, bytes + listed * #field
  if string.sub(field, 1, 1) ~= US then
    members[#members + 1] = MARK .. swapped(field)
    bytes = bytes + listed * (#field + 1)
  end
end

local function remove(field)
  fields[#fields + 1] = field
  weigh(checkpoints, field)
  unlist(field)
  if is_ancestor(field) then
    members[#members + 1] = GS .. field
    bytes = bytes + #field + 1
  end
  for _, name in ipairs(redis.call('ZRANGEBYLEX', pending, '[' .. field .. US, '(' .. field .. ' ')) do
    names[#names + 1] = name
    gone_writes, bytes = gone_writes + weigh(writes, name), bytes + #name
  end
end

local function make_ancestor(field, refs)
  local record = redis.call('HGET', checkpoints, field)
  local parent, run, root, deltas = header(record or '')
  if not parent then return end
  unlist(field)
  local rest = table.concat({'1' .. parent, run, root, deltas, refs, ''}, GS)
  records[#records + 1] = field
  records[#records + 1] = rest
  bytes = bytes + #record - #rest
  if not is_ancestor(field) then
    ancestors[#ancestors + 1] = 0
    ancestors[#ancestors + 1] = GS .. field
    bytes = bytes - #field - 1
  end
end

local at = 4
while at <= #ARGV and #members + #names + #unused / 2 < MOST_NAMES and bytes < MOST_BYTES do
  local field, count = ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  if string.sub(field, 1, 1) == GS then
    make_ancestor(string.sub(field, 2), ARGV[at])
    at = at + 1
  elseif field ~= '' then
    remove(field)
  end
  for i = at, at + count - 1 do
    for _, name in ipairs({ARGV[i], GS .. ARGV[i]}) do
      unused[#unused + 1] = name
      gone_blobs = gone_blobs + weigh(blobs, name)
    end
  end
  groups, at = groups + 1, at + count
end
if mode == 'count' then return {epoch, groups, gone, gone_writes, gone_blobs, bytes} end
sliced('HDEL', checkpoints, fields)
sliced('ZREM', order, members)
sliced('HDEL', writes, names)
sliced('ZREM', pending, names)
sliced('HDEL', blobs, unused)
sliced('HSET', checkpoints, records)
sliced('ZADD', order, ancestors)
if mode == 'last' and at > #ARGV then
  redis.call('HDEL', checkpoints, 'orphans')
end
if epoch ~= '' and redis.call('EXISTS', order) == 0 then
  -- Nothing refers to a blob now. Writes may have come before their checkpoint: they stay, but no pin does.
  redis.call('UNLINK', checkpoints, blobs)
  if idle ~= '0' and redis.call('PTTL', writes) == -1 then
    expire_in(tonumber(idle), {writes, pending})
  end
elseif epoch ~= '' then
  epoch = string.format('%.0f', (tonumber(epoch) or 0) + 1)
  redis.call('HSET', checkpoints, 'epoch', epoch)
end
return {epoch, groups, gone, gone_writes, gone_blobs, bytes}
