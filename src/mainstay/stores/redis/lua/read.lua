#!lua flags=allow-oom
-- The server's clock and the record. No `no-writes` flag, so that a replica, which may be behind,
-- refuses: a decision to keep a record is made on this reading alone.
-- KEYS: record
local time = redis.call('TIME')
return {time[1], time[2], redis.call('GET', KEYS[1])}
