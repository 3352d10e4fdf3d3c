-- A value stands under ns US channel US version, whole, or under GS and that name, as a delta of an earlier version:
-- what is a delta can be told, and a delta read, without reading a value that is whole.

-- The size of the record of a value; 0 if it is not there.
local function size_of(name)
  local size = redis.call('HSTRLEN', blobs, name)
  return size > 0 and size or redis.call('HSTRLEN', blobs, GS .. name)
end

-- The name of what a delta is built on, and the size that its record should have; nothing for other records.
local function base_of(name, record)
  local base, size = string.match(record, '^2d[^\31]*\31%d+\31([^\31]*)\31(%d+)')
  if base then return string.match(name, '^(.*\31)') .. base, tonumber(size) end
end

-- The record of a delta and the name of its base; false if there is none of that name.
local function delta(name)
  local record = redis.call('HGET', blobs, GS .. name)
  return record, record and base_of(name, record) or nil
end

-- Adds a value and all that it is built on to lists of names and records, up to what is met already.
local function add_chain(name, met, names, records)
  while name and not met[name] do
    met[name] = true
    local record, base = redis.call('HGET', blobs, name), nil
    if not record then record, base = delta(name) end
    names[#names + 1], records[#records + 1], name = name, record, base
  end
end

-- The records of values; what the deltas among them are built on is added to lists of names and records.
local function read_blobs(wanted, met, names, records)
  local found = sliced('HMGET', blobs, wanted)
  for i = 1, #wanted do
    if not found[i] then
      local base
      found[i], base = delta(wanted[i])
      add_chain(base, met, names, records)
    end
  end
  return found
end
