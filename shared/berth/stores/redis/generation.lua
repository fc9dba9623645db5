-- Runs before each script: is this the store that it was, or one that came back older, or in part?
-- The server's run id and replication id, and the revision in all three keys, must be those of the last
-- write; no client may have seen a later revision, or the end of this generation. Else a new one
-- begins, unless FRESH names none: a caller that only reads is told of a store without one, and the next that
-- writes begins one.
-- The mark is no UTF-8, so no document's key: "FORMAT GENERATION REVISION FLOOR RUN-ID REPLICATION-ID".
local DOCUMENTS, WRITTEN, DELETED = KEYS[1], KEYS[2], KEYS[3]
local EPOCH, FRESH, KNOWN, SEEN, OVER = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local MARK, FORMAT = '\255', '1'

local INFO = redis.call('INFO', 'server', 'replication')

local function info(name)
  local _, at = string.find(INFO, '\n' .. name .. ':', 1, true)
  return at and string.sub(INFO, at + 1, at + 40)
end

local function server()
  local run, history = info('run_id'), info('master_replid')
  return run and history and run .. ' ' .. history
end

local HERE = server()

-- The mark in the hash goes first and those beside it last: a script that was cut short is noticed.
local function advance(generation, rev, floor)
  redis.call('HSET', DOCUMENTS, MARK, string.format('%s %s %.0f %.0f %s', FORMAT, generation, rev, floor, HERE))
end

local function settle(rev)
  redis.call('ZADD', WRITTEN, rev, MARK)
  redis.call('ZADD', DELETED, rev, MARK)
end

local function begin(rev)
  if FRESH == '' then
    return ''
  end
  redis.call('DEL', WRITTEN, DELETED)
  redis.call('HDEL', DOCUMENTS, EPOCH)
  advance(FRESH, rev, rev)
  settle(rev)
  return FRESH, rev, rev
end

local function trusted()
  local mark = redis.call('HGET', DOCUMENTS, MARK)
  if not mark then
    if FRESH ~= '' then
      redis.call('DEL', DOCUMENTS) -- without a revision nothing tells which versions were given before
    end
    return begin(1)
  end
  local format, generation, rev, floor, there = string.match(mark, '^(%d+) (%x+) (%d+) (%d+) (.*)$')
  if format ~= FORMAT then
    return nil
  end
  rev, floor = tonumber(rev), tonumber(floor)
  local whole = tonumber(redis.call('ZSCORE', WRITTEN, MARK) or -1) == rev
    and tonumber(redis.call('ZSCORE', DELETED, MARK) or -1) == rev
  local older = (generation == KNOWN and rev < SEEN) or string.find(OVER, generation, 1, true)
  if there == HERE and whole and not older then
    return generation, rev, floor
  end
  return begin(rev)
end

if not HERE then
  return redis.error_reply('BERTHSERVER')
end
local generation, rev, floor = trusted()
if not generation then
  return redis.error_reply('BERTHFORMAT')
end
if generation == '' then
  if string.find(INFO, '\nrole:slave', 1, true) then -- where a writer would be refused, a reader is wrong, too
    return redis.error_reply('READONLY this is a replica')
  end
  return {'', 0}
end
