-- Purpose: let one grant leave. The key is free when the last one has left or is over.
-- KEYS[1]  the lock; its name is also the channel that waiters listen to
-- KEYS[2]  the mark of a grant that was given up
-- ARGV[1]  grant id
-- ARGV[2]  ms for which a late request of the grant must not enter any more; 0: none can be on its way
-- Returns 1 left, 0 was not inside
-- Cost: O(grants inside).
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last, left = 0, 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local ends = string.sub(fields[i], 1, 2) == 'g:' and tonumber(fields[i + 1])
  if ends and string.sub(fields[i], 3) == ARGV[1] then
    redis.call('HDEL', KEYS[1], fields[i])
    left = ends > now and 1 or 0
  elseif ends and ends > now then
    last = math.max(last, ends)
  elseif ends then
    redis.call('HDEL', KEYS[1], fields[i])
  end
end
if #fields > 0 and last == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[1], '')
elseif last > 0 then
  redis.call('PEXPIRE', KEYS[1], last - now)
end
return left
