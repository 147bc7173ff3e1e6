-- Purpose: start the lease of a grant anew. Never brings back a key that is gone.
-- KEYS[1]  the lock
-- ARGV[1]  owner value
-- ARGV[2]  TTL in ms
-- Returns 1 renewed, 0 not held by this grant
-- Cost: O(1), 2 commands.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
