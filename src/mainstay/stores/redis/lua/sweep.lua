#!lua flags=allow-oom
-- Removes records whose time has come, and the index entries of those the server has dropped; how
-- many. Looked at again here, because they may have been written since they were listed.
-- KEYS: index, expiring, record...    ARGV: key...
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local swept = 0
for i, key in ipairs(ARGV) do
  local due = redis.call('ZSCORE', KEYS[2], key)
  if (due and tonumber(due) <= now) or redis.call('EXISTS', KEYS[i + 2]) == 0 then
    redis.call('DEL', KEYS[i + 2])
    redis.call('ZREM', KEYS[1], key)
    redis.call('ZREM', KEYS[2], key)
    swept = swept + 1
  end
end
return swept
