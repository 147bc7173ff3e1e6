-- Purpose: let a holder enter a lock, once more if it is inside already.
-- KEYS[1]  the lock, a hash: holder, owner and hold of the outermost grant, and a field g:<grant id> with its end for
--          every grant. The count is the number of those fields, so a request that is sent again counts once.
-- KEYS[2]  the mark of a grant that was given up
-- ARGV[1]  holder, compared whole
-- ARGV[2]  owner value
-- ARGV[3]  grant id
-- ARGV[4]  TTL in ms
-- Returns  {0, hold}  inside; hold is the grant id of the outermost grant
--          {-1, ''}   the grant was given up meanwhile
--          {-2, ''}   too many grants inside (1000)
--          {ms, ''}   held by another for so long unless it renews
-- Cost: O(grants inside).
if redis.call('EXISTS', KEYS[2]) == 1 then
  return { -1, '' }
end
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder and holder ~= ARGV[1] then
  return { redis.call('PTTL', KEYS[1]) + 1, '' }
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ttl = tonumber(ARGV[4])
if not holder then
  redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'owner', ARGV[2], 'hold', ARGV[3], 'g:' .. ARGV[3], now + ttl)
  redis.call('PEXPIRE', KEYS[1], ttl)
  return { 0, ARGV[3] }
end
if redis.call('HLEN', KEYS[1]) >= 1003 then
  return { -2, '' }
end
redis.call('HSET', KEYS[1], 'g:' .. ARGV[3], now + ttl)
if redis.call('PTTL', KEYS[1]) < ttl then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return { 0, redis.call('HGET', KEYS[1], 'hold') }
