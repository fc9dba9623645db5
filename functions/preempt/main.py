"""kube-scheduler's preempt call: which of its candidates would really make room for a pod.
Run it: functions-framework --source functions/preempt/main.py --target preempt"""

import functions_framework
from flask import Request

from berth.handlers import preempt as verb
from berth.http.function import Response, serve

answer = serve(verb.endpoint)


@functions_framework.http
def preempt(request: Request) -> Response:
    return answer(request)
