-- list_page: one page of checkpoints, newest first, with their values and writes.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record
-- KEYS[2]  <prefix>:{T}:blobs        hash  ns US channel US version -> blob record; with GS before it: a delta
-- KEYS[3]  <prefix>:{T}:writes       hash  ns US id US task US idx -> write record
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; MARK id US ns for other namespaces than the root
-- KEYS[5]  <prefix>:{T}:pending      zset  ns US id US task US idx, every score 0
-- ARGV[1]  idle       ms from this read until the thread expires, if that is later; nothing = reads do not count
-- ARGV[2]  size       checkpoints a page
-- ARGV[3]  bare       1 = records only, without blobs and writes
-- ARGV[4]  own_low    the range of members ns US id to list
-- ARGV[5]  own_high
-- ARGV[6]  all_low    the range of members MARK id US ns to list with them
-- ARGV[7]  all_high
--
-- Returns  intact, n, then n times: field, record, w, and w times name, record of a write; then field, blob of
--          each blob that the page refers to, and of what these are built on, once. false where a record or a blob is
--          gone
-- Cost     O(log n + size) and what the page holds, however long the thread is
-- Caller   redis_ckpt/_scripts.py: list_page
--- @include lib/keys
--- @include lib/order
--- @include lib/sliced
--- @include lib/deadline
--- @include lib/header
--- @include lib/writes_of
--- @include lib/blobs
local idle, size, bare = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local own_low, own_high, all_low, all_high = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

-- Lua compares text by the server's locale; names are ordered by bytes.
local function greater(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

local own = redis.call('ZREVRANGEBYLEX', order, own_high, own_low, 'LIMIT', 0, size)
local all = redis.call('ZREVRANGEBYLEX', order, all_high, all_low, 'LIMIT', 0, size)
local fields, i, j = {}, 1, 1
while #fields < size and (own[i] or all[j]) do
  local other = all[j] and string.sub(all[j], 2)
  if other and (not own[i] or greater(other, swapped(own[i]))) then
    fields[#fields + 1], j = swapped(other), j + 1
  else
    fields[#fields + 1], i = own[i], i + 1
  end
end

-- The order is lost: one item without a record says so.
if #fields == 0 and order_lost() then
  return {0, 1, string.sub(own_low, 2), false, 0}
end
if #fields > 0 then seen(idle) end
local records = sliced('HMGET', checkpoints, fields)
local reply, names, named = {writes_intact(), #fields}, {}, {}
for k = 1, #fields do
  local field, record = fields[k], records[k]
  reply[#reply + 1] = field
  reply[#reply + 1] = record
  local write_names, write_records = {}, {}
  if record and not bare then
    write_names, write_records = writes_of(field)
    local ns = string.sub(field, 1, string.find(field, US, 1, true))
    local _, _, _, _, refs = header(record)
    for ref in string.gmatch(refs or '', '[^\30]+') do
      local name = ns .. ref
      if not named[name] then
        named[name] = true
        names[#names + 1] = name
      end
    end
  end
  reply[#reply + 1] = #write_names
  for w = 1, #write_names do
    reply[#reply + 1] = write_names[w]
    reply[#reply + 1] = write_records[w]
  end
end
local base_names, base_records = {}, {}
local values = read_blobs(names, named, base_names, base_records)
for _, part in ipairs({{names, values}, {base_names, base_records}}) do
  for k = 1, #part[1] do
    reply[#reply + 1] = part[1][k]
    reply[#reply + 1] = part[2][k]
  end
end
return reply
