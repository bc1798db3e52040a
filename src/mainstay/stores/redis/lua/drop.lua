#!lua flags=allow-oom
-- Deletes the record if it is still the one that was read, and no other step holds it; otherwise
-- answers as write.lua does.
-- KEYS: record, index, expiring, hold    ARGV: token that was read, name, ms to hold it or '', key
local held = redis.call('GET', KEYS[4])
if (held and held ~= ARGV[2]) or redis.call('GETRANGE', KEYS[1], 0, 11) ~= ARGV[1] then
  if not held and ARGV[3] ~= '' then
    redis.call('SET', KEYS[4], ARGV[2], 'PX', ARGV[3])
    held = ARGV[2]
  end
  local time = redis.call('TIME')
  return {time[1], time[2], redis.call('GET', KEYS[1]), held == ARGV[2] and 1 or 0}
end
redis.call('DEL', KEYS[1], KEYS[4])
redis.call('ZREM', KEYS[2], ARGV[4])
redis.call('ZREM', KEYS[3], ARGV[4])
return 1
