-- One deadline for all keys of a thread, in ms by the server's clock. A thread is idle for so long as it is kept:
-- its own idle time counts (the field `idle`, '0' = it is pinned), else the caller's ('0' = it says nothing).
local FAR = 4102444800000

local function idle_time(idle)
  return tonumber(redis.call('HGET', checkpoints, 'idle') or idle) or 0
end

-- Lets those of the keys that exist expire in so many ms, all at once.
local function expire_in(ms, keys)
  for _, key in ipairs(keys) do
    if redis.call('PEXPIREAT', key, FAR) == 1 then
      -- A restricted user may not ask for TIME: what is left of a far deadline tells it as well.
      local deadline = string.format('%.0f', FAR - redis.call('PTTL', key) + ms)
      for _, each in ipairs(keys) do
        redis.call('PEXPIREAT', each, deadline)
      end
      return
    end
  end
end

local function persist(keys)
  for _, key in ipairs(keys) do
    redis.call('PERSIST', key)
  end
end

-- Gives those of the keys that exist the deadline that an idle time says, or none.
local function settle(idle, keys)
  local ms = idle_time(idle)
  if ms > 0 then
    expire_in(ms, keys)
  else
    persist(keys)
  end
end

-- After a write, with what `idle_time` says. `left` is what PTTL said before it: without an idle time the
-- thread keeps its deadline, for the keys too that are new.
local function written(ms, left)
  local keys = {checkpoints, blobs, writes, order, pending}
  if ms > 0 then
    expire_in(ms, keys)
  elseif left >= 0 then
    expire_in(left, keys)
  elseif left == -2 then
    persist(keys)
  end
end

-- After a read, which never takes time from a thread. '' = reads do not count.
local function seen(idle)
  if idle == '' then return end
  local ms, left = idle_time(idle), redis.call('PTTL', checkpoints)
  if left >= 0 and ms > left then
    expire_in(ms, {checkpoints, blobs, writes, order, pending})
  end
end
