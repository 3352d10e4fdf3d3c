-- What no record will name is remembered for the next prune: refs of a namespace (quoted, with US).
local function orphan(ns, refs)
  if #refs == 0 then return end
  local orphans = redis.call('HGET', checkpoints, 'orphans') or ''
  for _, ref in ipairs(refs) do
    if not string.find('\30' .. orphans, '\30' .. ns .. ref .. '\30', 1, true) then
      orphans = orphans .. ns .. ref .. '\30'
    end
  end
  redis.call('HSET', checkpoints, 'orphans', orphans)
end
