-- thread_info: what a thread holds, in numbers, and one page of its namespaces.
--
-- KEYS[1]  <prefix>:{T}:checkpoints  hash  ns US id -> checkpoint record; other fields have no US
-- KEYS[2]  <prefix>:{T}:blobs        hash  not read
-- KEYS[3]  <prefix>:{T}:writes       hash  not read
-- KEYS[4]  <prefix>:{T}:order        zset  ns US id; MARK id US ns for other namespaces than the root; GS ns US id
-- KEYS[5]  <prefix>:{T}:pending      zset  not read
-- ARGV[1]  after      the namespace (quoted, with US) behind which the page begins; nothing = at the first
-- ARGV[2]  most       namespaces a page
--
-- Returns  checkpoints, ms until the deadline (-1 none), the thread's own idle time (ms; 0 = pinned), the greatest ids
--          of the root and of the other namespaces (nothing where there is none), then the namespaces, quoted, with US
-- Cost     O(m log n) in the namespaces of the page
-- Caller   redis_ckpt/_scripts.py: thread_info
--- @include lib/keys
--- @include lib/order
local after, most = ARGV[1], tonumber(ARGV[2])

local root_top, other_top = greatest_ids()
local count = redis.call('HLEN', checkpoints)
count = count - redis.call('ZLEXCOUNT', order, '[' .. GS, '(' .. MARK)
for _, meta in ipairs({'epoch', 'orphans', 'idle'}) do
  count = count - redis.call('HEXISTS', checkpoints, meta)
end
local reply = {
  count,
  redis.call('PTTL', order),
  redis.call('HGET', checkpoints, 'idle') or '',
  root_top,
  other_top,
}
local low = after == '' and '[' .. US or '(' .. after .. '\255'
while most > 0 do
  local member = redis.call('ZRANGEBYLEX', order, low, '+', 'LIMIT', 0, 1)[1]
  if not member then break end
  local ns = string.sub(member, 1, string.find(member, US, 1, true))
  reply[#reply + 1] = ns
  low = '(' .. ns .. '\255'
  most = most - 1
end
return reply
