#!lua
-- Writes the record if it is still the one that was read, and no other step holds it. Otherwise
-- answers as read.lua does, and whether the caller holds it now: it may, if it asked to, where
-- nobody does. 2 where the space was empty before, else 1.
-- KEYS: record, index, expiring, hold
-- ARGV: token that was read, new token, ms to hold it or '', key, value, expiry in ms or ''
-- The server itself drops a record a week after it has expired, if nobody has purged it: a clock
-- that is set ahead for a while does not cost a record.
local held = redis.call('GET', KEYS[4])
if (held and held ~= ARGV[2]) or redis.call('GETRANGE', KEYS[1], 0, 11) ~= ARGV[1] then
  if not held and ARGV[3] ~= '' then
    redis.call('SET', KEYS[4], ARGV[2], 'PX', ARGV[3])
    held = ARGV[2]
  end
  local time = redis.call('TIME')
  return {time[1], time[2], redis.call('GET', KEYS[1]), held == ARGV[2] and 1 or 0}
end
if held then
  redis.call('DEL', KEYS[4])
end
if ARGV[6] == '' then
  redis.call('SET', KEYS[1], ARGV[2] .. ARGV[5])
  redis.call('ZREM', KEYS[3], ARGV[4])
else
  redis.call('SET', KEYS[1], ARGV[2] .. ARGV[5], 'PXAT', ARGV[6] + 604800000)
  redis.call('ZADD', KEYS[3], ARGV[6], ARGV[4])
end
if redis.call('ZADD', KEYS[2], 0, ARGV[4]) == 1 and redis.call('ZCARD', KEYS[2]) == 1 then
  return 2
end
return 1
