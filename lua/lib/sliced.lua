-- Calls a command with a list of any length: Lua's unpack fails near 8,000 values.
-- Answers the list of all replies, one after another, of a command that answers lists.
-- SLICE is even, so that pairs stay together.
local SLICE = 4000

local function sliced(command, key, list)
  local replies = {}
  for from = 1, #list, SLICE do
    local reply = redis.call(command, key, unpack(list, from, math.min(from + SLICE - 1, #list)))
    if type(reply) == 'table' then
      for i = 1, #list - from + 1 do
        if i > SLICE then break end
        replies[from + i - 1] = reply[i]
      end
    end
  end
  return replies
end
