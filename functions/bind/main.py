"""kube-scheduler's bind call: reserve a pod's units, bind it, confirm.
Run it: functions-framework --source functions/bind/main.py --target bind"""

import functions_framework
from flask import Request

from berth.serve import Response, serve
from berth.verbs import bind as verb

answer = serve(verb.endpoint)


@functions_framework.http
def bind(request: Request) -> Response:
    return answer(request)
