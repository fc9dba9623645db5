"""A clock's tick: make the ledger equal to the cluster.
Run it: functions-framework --source functions/reconcile/main.py --target reconcile"""

import functions_framework
from flask import Request

from berth.handlers import reconcile as verb
from berth.http.function import Response, serve

answer = serve(verb.endpoint)


@functions_framework.http
def reconcile(request: Request) -> Response:
    return answer(request)
