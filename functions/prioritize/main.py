"""kube-scheduler's prioritize call: how well each node suits a pod.
Run it: functions-framework --source functions/prioritize/main.py --target prioritize"""

import functions_framework
from flask import Request

from berth.handlers import prioritize as verb
from berth.http.function import Response, serve

answer = serve(verb.endpoint)


@functions_framework.http
def prioritize(request: Request) -> Response:
    return answer(request)
