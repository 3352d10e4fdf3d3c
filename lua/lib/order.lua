-- What several scripts ask of the order of a thread's checkpoints.

-- The member of the newest checkpoint of a namespace (quoted, with US), or nothing.
local function latest(ns)
  return redis.call('ZREVRANGEBYLEX', order, '(' .. ns .. '\255', '[' .. ns, 'LIMIT', 0, 1)[1]
end

-- Ancestors are checkpoints that were removed but whose writes or values delta channels still need: their records
-- stay, without a body, and their place in the order is GS ns US id, where no reader looks.
local function is_ancestor(field)
  return redis.call('ZSCORE', order, GS .. field)
end

-- Whether there are records, but the order that leads to them is gone.
local function order_lost()
  return redis.call('EXISTS', order) == 0 and redis.call('EXISTS', checkpoints) == 1
end

-- The greatest ids of the root and of the other namespaces; '' where there is none.
local function greatest_ids()
  local root = latest(US)
  local other = redis.call('ZREVRANGEBYLEX', order, '(' .. US, '[' .. MARK, 'LIMIT', 0, 1)[1]
  return root and string.sub(root, 2) or '',
    other and string.sub(other, 2, string.find(other, US, 1, true) - 1) or ''
end

-- ns US id -> id US ns, and back
local function swapped(name)
  local at = string.find(name, US, 1, true)
  return string.sub(name, at + 1) .. US .. string.sub(name, 1, at - 1)
end

-- The checkpoint, ns US id, of any member of the order.
local function field_of(member)
  local first = string.sub(member, 1, 1)
  if first == GS then return string.sub(member, 2) end
  return first == MARK and swapped(string.sub(member, 2)) or member
end
