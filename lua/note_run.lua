-- note_run: remember that a run has touched a thread.
--
-- KEYS[1]  <prefix>:run:{R}  set  quoted thread ids
-- ARGV[1]  thread     the thread, quoted
-- ARGV[2]  ttl        ms until the key expires
-- ARGV[3]  only_old   1 = only if the key is there: a key that names some threads of a run must name all
--
-- Returns  1 noted, 0 not
-- Cost     O(1)
-- Caller   redis_ckpt/_scripts.py: note_run
local run, thread, ttl, only_old = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1'

if only_old and redis.call('EXISTS', run) == 0 then return 0 end
redis.call('SADD', run, thread)
redis.call('PEXPIRE', run, ttl)
return 1
