"""kube-scheduler's preempt call: which of its candidates would really make room for a pod.
Run it: functions-framework --source functions/preempt/main.py --target preempt"""

import functions_framework
from flask import Request

from berth.serve import Response, serve
from berth.verbs import preempt as verb

answer = serve(verb.endpoint)


@functions_framework.http
def preempt(request: Request) -> Response:
    return answer(request)
