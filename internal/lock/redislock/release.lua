-- Purpose: free the key if this very grant holds it, and tell who waits for it.
-- KEYS[1]  the lock; its name is also the channel that waiters listen to
-- KEYS[2]  the mark of a grant that was given up
-- ARGV[1]  owner value
-- ARGV[2]  ms for which a late request of the grant must not hold the key any more; 0: none can be on its way
-- Returns 1 freed, 0 not held by this grant
-- Cost: O(1) and the number of listeners.
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[1], '')
return 1
