-- Purpose: hold a key for one grant, if nobody else does.
-- KEYS[1]  the lock
-- KEYS[2]  the mark of a grant that was given up
-- ARGV[1]  owner value, unique by its grant id
-- ARGV[2]  TTL in ms
-- Returns   0  held: newly, or already, by an earlier request of the same grant whose reply was lost
--          -1  the grant was given up meanwhile; it holds nothing
--          >0  held by another for so many ms unless it renews
-- Cost: O(1), 2 to 4 commands.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return -1
end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then -- no expiry: not one of our locks, held until somebody removes it
  return 86400000
end
return left + 1 -- 0 is "held"
