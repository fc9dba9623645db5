-- What was written and deleted since a revision of a life, or all there is.
local since_life, since = ARGV[6], tonumber(ARGV[7])
if since_life ~= life or since < floor or since > rev then
  return {life, rev, redis.call('HGETALL', DOCUMENTS)}
end
if since == rev then
  return {life, rev}
end
local after, found = '(' .. ARGV[7], {}
for _, key in ipairs(redis.call('ZRANGEBYSCORE', WRITTEN, after, '+inf')) do
  found[#found + 1] = key
  found[#found + 1] = redis.call('HGET', DOCUMENTS, key)
end
return {life, rev, found, redis.call('ZRANGEBYSCORE', DELETED, after, '+inf')}
