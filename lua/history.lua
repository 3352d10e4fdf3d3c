-- history: walk the parents of a checkpoint, collecting the writes and the nearest value of channels.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record
-- KEYS[2]  <prefix>:{T}:blobs        hash  ns US channel US version -> blob record; with GS before it: a delta
-- KEYS[3]  <prefix>:{T}:writes       hash  ns US id US task US idx -> write record
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; GS ns US id of ancestors that are only walked
-- KEYS[5]  <prefix>:{T}:pending      zset  ns US id US task US idx, every score 0
-- ARGV[1]  idle       ms from this read until the thread expires, if that is later; nothing = reads do not count
-- ARGV[2]  ns         the namespace, quoted
-- ARGV[3]  target     the checkpoint whose ancestors are meant, quoted; nothing = the latest
-- ARGV[4]  at         the ancestor to go on from, quoted; nothing = begin with the target's parent
-- ARGV[5]  most       ancestors a page; a page also ends behind 500 writes
-- ARGV[6..]           the channels to look for, quoted
--
-- Returns  target, next (the ancestor to go on from, nothing at the end), intact, then for each ancestor: id, s, and
--          s times ref (channel US version), blob of a value found here (false where it is gone), d and d times ref,
--          blob of what these are built on, w, and w times name, record of a write to one of the channels. A record of
--          another format alone, for the client to refuse.
--          The id of a checkpoint, nothing and -1 if its record is lost. false if readers do not see the target: while
--          they do, all its ancestors are there
-- Cost     O(a log n + w) in the ancestors and writes of the page
-- Caller   redis_ckpt/_scripts.py: history
--- @include lib/keys
--- @include lib/order
--- @include lib/sliced
--- @include lib/deadline
--- @include lib/header
--- @include lib/writes_of
--- @include lib/blobs
local idle, ns, target, at, most = ARGV[1], ARGV[2] .. US, ARGV[3], ARGV[4], tonumber(ARGV[5])
local MOST_WRITES = 500

local wanted, left = {}, 0
for i = 6, #ARGV do
  wanted[ARGV[i]] = true
  left = left + 1
end

local field = target == '' and latest(ns) or ns .. target
local record = redis.call('HGET', checkpoints, field)
if record and is_ancestor(field) then return false end
if not record then
  return (redis.call('ZSCORE', order, field) or order_lost()) and {target, '', -1} or false
end
target = string.sub(field, #ns + 1)
local id = header(record)
if not id then return {record} end
if at == '' then
  seen(idle)
else
  id = at
end

local reply, met, looked_at = {target, '', writes_intact()}, {}, 0
while id ~= '' and left > 0 and most > 0 and looked_at < MOST_WRITES and not met[id] do
  met[id] = true
  most = most - 1
  field = ns .. id
  record = redis.call('HGET', checkpoints, field)
  if not record then
    if redis.call('ZSCORE', order, field) then return {id, '', -1} end
    id = ''
    break
  end
  local parent, _, _, _, refs = header(record)
  if not parent then return {record} end

  local names, records = writes_of(field)
  looked_at = looked_at + #names
  local found = {}
  for w = 1, #names do
    local channel = records[w] and string.match(records[w], '^1([^\31]*)\31')
    if not channel or wanted[channel] then
      found[#found + 1] = names[w]
      found[#found + 1] = records[w]
    end
  end
  local seeds, bases = {}, {}
  for channel, version in string.gmatch(refs, '([^\30\31]*)\31([^\30]*)') do
    local chain, blobs_found = {}, {}
    if wanted[channel] then add_chain(ns .. channel .. US .. version, {}, chain, blobs_found) end
    if #chain > 0 and blobs_found[1] ~= '1e' then
      wanted[channel], left = nil, left - 1
      for s = 1, #chain do
        local pairs_of = s == 1 and seeds or bases
        pairs_of[#pairs_of + 1] = string.sub(chain[s], #ns + 1)
        pairs_of[#pairs_of + 1] = blobs_found[s]
      end
    end
  end

  reply[#reply + 1] = id
  for _, part in ipairs({seeds, bases, found}) do
    reply[#reply + 1] = #part / 2
    for p = 1, #part do
      reply[#reply + 1] = part[p]
    end
  end
  id = parent
end
if left > 0 and not met[id] then
  reply[2] = id
end
return reply
