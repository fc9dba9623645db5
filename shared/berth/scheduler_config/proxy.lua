-- Puts the token of a file into a call, in place of what its sender put there; without one the call has none.
-- The file is read for each call: a projected token is replaced while the proxy runs.
core.register_action("add_token", { "http-req" }, function(call, path)
  local file = io.open(path, "r")
  local text = file and file:read("a") or ""
  if file then file:close() end
  local token = text:match("^%s*([%w%-%._~%+/]+=*)%s*$")
  call.http:req_del_header("Authorization")
  if token then call.http:req_add_header("Authorization", "Bearer " .. token) end
end, 1)
