-- The documents of these keys as of one moment.
local found = {life, rev}
for i = 6, #ARGV do
  found[#found + 1] = redis.call('HGET', DOCUMENTS, ARGV[i])
end
return found
