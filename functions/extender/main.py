"""kube-scheduler's calls under one URL: /filter, /prioritize, /preempt and /bind, with any path before them.
Run it: functions-framework --source functions/extender/main.py --target extender"""

import functions_framework
from flask import Request

from berth.handlers.extender import router
from berth.http.function import Response, serve

answer = serve(router)


@functions_framework.http
def extender(request: Request) -> Response:
    return answer(request)
