-- What was written and deleted since a revision of a generation, or all there is.
local since_generation, since = ARGV[6], tonumber(ARGV[7])
if since_generation ~= generation or since < floor or since > rev then
  return {generation, rev, redis.call('HGETALL', DOCUMENTS)}
end
if since == rev then
  return {generation, rev}
end
local after, written = '(' .. ARGV[7], {}
for _, key in ipairs(redis.call('ZRANGEBYSCORE', WRITTEN, after, '+inf')) do
  written[#written + 1] = key
  written[#written + 1] = redis.call('HGET', DOCUMENTS, key)
end
return {generation, rev, written, redis.call('ZRANGEBYSCORE', DELETED, after, '+inf')}
