-- Adds the token of a file to a call. The file is read for each call: a projected token is replaced while the proxy runs.
core.register_action("add_token", { "http-req" }, function(call, path)
  local file = io.open(path, "r")
  local text = file and file:read("a") or ""
  if file then file:close() end
  local token = text:match("^%s*([%w%-%._~%+/]+=*)%s*$")
  if token then
    call.http:req_set_header("Authorization", "Bearer " .. token)
  else
    call:set_var("txn.without_token", true)
  end
end, 1)
