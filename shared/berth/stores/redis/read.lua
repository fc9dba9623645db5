-- The documents of these keys as of one moment.
local answer = {generation, rev}
for i = 6, #ARGV do
  answer[#answer + 1] = redis.call('HGET', DOCUMENTS, ARGV[i])
end
return answer
