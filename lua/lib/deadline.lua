-- One deadline for all that a thread has. '0' leaves the keys as they are.
local function set_deadline(deadline)
  if deadline ~= '0' then
    for _, key in ipairs({checkpoints, blobs, writes, order, pending}) do
      redis.call('PEXPIREAT', key, deadline)
    end
  end
end
