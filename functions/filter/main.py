"""kube-scheduler's filter call: which nodes can take a pod, and why the others can't.
Run it: functions-framework --source functions/filter/main.py --target filter"""

import functions_framework
from flask import Request

from berth.handlers import filter as verb
from berth.http.function import Response, serve

answer = serve(verb.endpoint)


@functions_framework.http
def filter(request: Request) -> Response:  # noqa: A001 - the target that users name
    return answer(request)
