"""Pod events: free the units of a pod that is gone or finished, wake who waits for them.
Run it: functions-framework --source functions/release/main.py --target release"""

import functions_framework
from flask import Request

from berth.handlers import release as verb
from berth.http.function import Response, serve

answer = serve(verb.endpoint)


@functions_framework.http
def release(request: Request) -> Response:
    return answer(request)
