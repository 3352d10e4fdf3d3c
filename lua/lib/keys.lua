-- The five keys of a thread and the separators of names. See lua/README.md.
local checkpoints, blobs, writes, order, pending = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local GS, MARK, US = '\29', '\30', '\31'
