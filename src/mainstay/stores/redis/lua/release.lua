#!lua flags=allow-oom
-- Lets others write again, if it is still the caller who holds the record.
-- KEYS: hold    ARGV: name
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1
