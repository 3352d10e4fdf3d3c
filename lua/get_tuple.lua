-- get_tuple: one checkpoint with its values and its pending writes.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record
-- KEYS[2]  <prefix>:{T}:blobs        hash  ns US channel US version -> blob record; with GS before it: a delta
-- KEYS[3]  <prefix>:{T}:writes       hash  ns US id US task US idx -> write record
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; GS ns US id of ancestors that no reader sees
-- KEYS[5]  <prefix>:{T}:pending      zset  ns US id US task US idx, every score 0
-- ARGV[1]  idle       ms from this read until the thread expires, if that is later; nothing = reads do not count
-- ARGV[2]  ns         the namespace, quoted
-- ARGV[3]  id         the checkpoint, quoted; nothing = the latest, which is the greatest id
-- ARGV[4..]           refs (channel US version) of values that the caller has
--
-- Returns  false if there is none; else field, record, intact, newest, b, then b blobs in the order of the record's
--          refs (false where one is gone, nothing where the caller has it), d and d times ref, blob of what deltas are
--          built on, down to what the caller has, then name, record of each write (false where one is gone).
--          record is false if it is gone; intact is 0 if writes of the thread were lost; newest is the field of the
--          newest checkpoint of the namespace, nothing if that was asked for
-- Cost     O(c + w + log n) in the channels and writes of the checkpoint and the n checkpoints of the thread; for a
--          channel that is a delta some dozens of records more, however often it was appended to
-- Caller   redis_ckpt/_scripts.py: get_tuple
--- @include lib/keys
--- @include lib/order
--- @include lib/sliced
--- @include lib/deadline
--- @include lib/header
--- @include lib/writes_of
--- @include lib/blobs
local idle, ns, id = ARGV[1], ARGV[2] .. US, ARGV[3]

local field = ns .. id
if id == '' then
  field = latest(ns)
  if not field then
    return order_lost() and {ns, false} or false
  end
end
local record = redis.call('HGET', checkpoints, field)
if record and id ~= '' and is_ancestor(field) then return false end
if not record then
  return redis.call('ZSCORE', order, field) and {field, false} or false
end
seen(idle)

local met = {}
for i = 4, #ARGV do
  met[ns .. ARGV[i]] = true
end
local _, _, _, _, refs = header(record)
local names, values, wanted, places = {}, {}, {}, {}
for ref in string.gmatch(refs or '', '[^\30]+') do
  local name = ns .. ref
  names[#names + 1] = name
  if met[name] then
    values[#names] = size_of(name) > 0 and ''
  else
    wanted[#wanted + 1] = name
    places[#places + 1] = #names
  end
end
local base_names, base_records = {}, {}
local found = read_blobs(wanted, met, base_names, base_records)
for i = 1, #wanted do
  values[places[i]] = found[i]
end
local reply = {field, record, writes_intact(), id ~= '' and latest(ns) or '', #names}
for i = 1, #names do
  reply[#reply + 1] = values[i]
end
reply[#reply + 1] = #base_names
for i = 1, #base_names do
  reply[#reply + 1] = string.sub(base_names[i], #ns + 1)
  reply[#reply + 1] = base_records[i]
end
local write_names, write_records = writes_of(field)
for i = 1, #write_names do
  reply[#reply + 1] = write_names[i]
  reply[#reply + 1] = write_records[i]
end
return reply
