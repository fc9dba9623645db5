-- All writes and deletions, or none unless every expected document has its version ('' : is not there).
-- ARGV: … how many are expected, how many written, how many deletions are kept; then key and version each,
-- then key and body each, then the keys to delete.
local expected, written, kept = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local writes = 9 + 2 * expected
local deletions = writes + 2 * written

for i = 9, writes - 1, 2 do
  local document = redis.call('HGET', DOCUMENTS, ARGV[i])
  if (document and generation .. '.' .. string.match(document, '^%d+') or '') ~= ARGV[i + 1] then
    return {generation, rev, 0}
  end
end
if writes > #ARGV then
  return {generation, rev, 1}
end

rev = rev + 1
advance(generation, rev, floor)
local number = string.format('%.0f ', rev)
for i = writes, deletions - 1, 2 do
  redis.call('HSET', DOCUMENTS, ARGV[i], number .. ARGV[i + 1])
  redis.call('ZADD', WRITTEN, rev, ARGV[i])
  redis.call('ZREM', DELETED, ARGV[i])
end
for i = deletions, #ARGV do
  if redis.call('HDEL', DOCUMENTS, ARGV[i]) == 1 then
    redis.call('ZREM', WRITTEN, ARGV[i])
    redis.call('ZADD', DELETED, rev, ARGV[i])
  end
end

local over = redis.call('ZCARD', DELETED) - 1 - kept
if over > 0 then
  -- Its mark may go as well: settle puts it back.
  local dropped = redis.call('ZPOPMIN', DELETED, over)
  floor = tonumber(dropped[#dropped])
  advance(generation, rev, floor)
end
settle(rev)
return {generation, rev, 1}
