"""kube-scheduler's bind call: reserve a pod's units, bind it, confirm.
Run it: functions-framework --source functions/bind/main.py --target bind"""

import functions_framework
from flask import Request

from berth.handlers import bind as verb
from berth.http.function import Response, serve

answer = serve(verb.endpoint)


@functions_framework.http
def bind(request: Request) -> Response:
    return answer(request)
