-- put: store a checkpoint and the blobs that are new with it.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record; epoch -> count of changes;
--                                          orphans -> blobs that no record names any more; idle -> the thread's own
-- KEYS[2]  <prefix>:{T}:blobs        hash  ns US channel US version -> blob record; with GS before it: a delta
-- KEYS[3]  <prefix>:{T}:writes       hash  only its deadline is moved
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; MARK id US ns for other namespaces than the root; GS ns US id
-- KEYS[5]  <prefix>:{T}:pending      zset  only its deadline is moved
-- ARGV[1]  idle       ms without a write until the thread expires; 0 = none: it keeps the deadline that it has
-- ARGV[2]  field      ns US id
-- ARGV[3]  member     MARK id US ns, or nothing for the root namespace
-- ARGV[4]  head       the checkpoint record up to its refs
-- ARGV[5]  refs       the refs (channel US version) of the channels that have a value
-- ARGV[6]  body       the checkpoint record behind its refs
-- ARGV[7]  epoch      where the count of changes begins if this is the thread's first checkpoint
-- ARGV[8]  emptied    how many channels have a new version but no value
-- ARGV[9]  quiet      how many channels have neither: a value stored at their version belongs to the checkpoint
-- ARGV[10]  counts    1 = the caller wants to know how many checkpoints the namespace has then; 0 = it does not
-- ARGV[11]  guard     = and the field that must be the newest of the namespace (= alone: there is none); nothing = any
-- ARGV[12..]          the refs of the emptied, of the quiet, then ref, blob record, ref, blob record ...
--
-- Returns  that number, or 1, when stored; or the refs that were not sent and are not stored, and those of deltas
--          whose base is not stored as it was: then nothing was written, and the caller sends once more with them,
--          whole; or, when nothing was written either, 0: the order of the thread is lost, -1: its parent was
--          removed, and delta channels would be rebuilt from that one, or the field of the newest, which is another
-- Cost     O(c + log n) in the c channels of the checkpoint and the n checkpoints of the thread
-- Caller   redis_ckpt/_scripts.py: put
--- @include lib/keys
--- @include lib/order
--- @include lib/sliced
--- @include lib/deadline
--- @include lib/header
--- @include lib/blobs
--- @include lib/orphans
local idle, field, member, head, refs, body, epoch, emptied, quiet, counts, guard =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8] + 0, ARGV[9] + 0, ARGV[10], ARGV[11]
local first_emptied, first_quiet, first_pair = 12, 12 + emptied, 12 + emptied + quiet
local ns = string.sub(field, 1, string.find(field, US, 1, true))
local parent, deltas = string.match(head, '^1([^\29]*)\29[^\29]*\29[^\29]*\29([^\29]*)\29')
local known = redis.call('HMGET', checkpoints, field, 'epoch', 'idle')
local old, changes, own_idle = known[1], known[2], known[3]
local has_parent = parent ~= '' and ns .. parent ~= field
local is_listed = has_parent and redis.call('ZSCORE', order, ns .. parent)
-- A first member would hide that the others are gone.
if not is_listed and order_lost() then return 0 end
-- What stands already was let in: a repeated put is no conflict.
if guard ~= '' and not old and '=' .. (latest(ns) or '') ~= guard then
  return latest(ns) or ''
end

-- Fields and records to store, and the names under which the same values must not stand as well.
local sent, fields, stale, missing = {}, {}, {}, {}
local function store(ref, record, is_delta)
  fields[#fields + 1] = (is_delta and GS or '') .. ns .. ref
  fields[#fields + 1] = record
  stale[#stale + 1] = (is_delta and '' or GS) .. ns .. ref
end
for i = first_pair, #ARGV, 2 do
  local ref, record = ARGV[i], ARGV[i + 1]
  local base, size = base_of(ns .. ref, record)
  sent[ref] = true
  store(ref, record, base)
  if base and size_of(base) ~= size then missing[#missing + 1] = ref end
end
for ref in string.gmatch(refs, '[^\30]+') do
  if not sent[ref] and size_of(ns .. ref) == 0 then missing[#missing + 1] = ref end
end
if #missing > 0 then return missing end
for i = first_quiet, first_pair - 1 do
  if size_of(ns .. ARGV[i]) > 0 then
    refs = refs .. (refs == '' and '' or '\30') .. ARGV[i]
  end
end
-- A delta channel without a value is rebuilt from its ancestors. Those of a parent that was removed may be gone, and
-- one that is left as an ancestor would be found where the caller has seen nothing.
if has_parent and not is_listed then
  if is_ancestor(ns .. parent) then return -1 end
  for channel in string.gmatch(deltas, '[^\30]+') do
    local is_stored = string.find('\30' .. refs, '\30' .. channel .. US, 1, true)
    if not is_stored and channel ~= '__pregel_tasks' then return -1 end
  end
end

-- Blobs sent beside the checkpoint's own versions; what the deltas that are replaced were built on; and what only the
-- record that this one replaces refers to.
local unnamed, deltas_sent = {}, {}
local named = '\30' .. refs .. '\30'
local function note_unnamed(ref)
  if not string.find(named, '\30' .. ref .. '\30', 1, true) then unnamed[#unnamed + 1] = ref end
end
for ref in pairs(sent) do
  deltas_sent[#deltas_sent + 1] = GS .. ns .. ref
  note_unnamed(ref)
end
for i, delta_record in ipairs(sliced('HMGET', blobs, deltas_sent)) do
  local base = delta_record and base_of(deltas_sent[i], delta_record)
  if base then unnamed[#unnamed + 1] = string.sub(base, #GS + #ns + 1) end
end
local _, _, _, _, old_refs = header(old or '')
for ref in string.gmatch(old_refs or '', '[^\30]+') do note_unnamed(ref) end

-- A version without a value is stored only where it takes the place of one: hand-made versions repeat.
for i = first_emptied, first_quiet - 1 do
  if size_of(ns .. ARGV[i]) > 0 then store(ARGV[i], '1e') end
end
local left = redis.call('PTTL', checkpoints)
sliced('HSET', blobs, fields)
sliced('HDEL', blobs, stale)
-- The epoch tells a planner whether anything changed since it looked. It begins at random, so that
-- a thread that was deleted and made anew never has an epoch of its former life.
changes = tonumber(changes) and string.format('%.0f', changes + 1) or epoch
redis.call('HSET', checkpoints, field, head .. refs .. GS .. body, 'epoch', changes)
orphan(ns, unnamed)
if old then redis.call('ZREM', order, GS .. field) end
sliced('ZADD', order, member == '' and {0, field} or {0, field, 0, member})
-- counted before the deadline is set: a thread may be in its last millisecond
local count = counts == '1' and redis.call('ZLEXCOUNT', order, '[' .. ns, '(' .. ns .. '\255') or 1
written(tonumber(own_idle or idle) or 0, left)
return count
