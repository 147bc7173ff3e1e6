-- Purpose: start the lease of one grant inside anew. Never brings back one that is over.
-- KEYS[1]  the lock
-- ARGV[1]  grant id
-- ARGV[2]  TTL in ms
-- Returns 1 renewed, 0 not inside
-- Cost: O(1).
local ends = redis.call('HGET', KEYS[1], 'g:' .. ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not ends or tonumber(ends) <= now then
  return 0
end
local ttl = tonumber(ARGV[2])
redis.call('HSET', KEYS[1], 'g:' .. ARGV[1], now + ttl)
if redis.call('PTTL', KEYS[1]) < ttl then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return 1
