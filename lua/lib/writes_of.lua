-- The names and records of the writes of one checkpoint, in the order of their names.
local function writes_of(field)
  local names = redis.call('ZRANGEBYLEX', pending, '[' .. field .. US, '(' .. field .. ' ')
  return names, sliced('HMGET', writes, names)
end

-- Every write has its name in `pending`; if one of the two keys was lost, the counts differ.
local function writes_intact()
  return redis.call('ZCARD', pending) == redis.call('HLEN', writes) and 1 or 0
end
