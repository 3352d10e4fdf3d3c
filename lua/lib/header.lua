-- The readable head of a checkpoint record: parent, run, root, deltas, refs, and the place where the
-- body begins. Nothing if the record is of another format; the client then says so.
local function header(record)
  return string.match(record, '^1([^\29]*)\29([^\29]*)\29([^\29]*)\29([^\29]*)\29([^\29]*)\29()')
end
