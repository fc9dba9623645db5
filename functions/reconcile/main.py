"""A clock's tick: make the ledger equal to the cluster.
Run it: functions-framework --source functions/reconcile/main.py --target reconcile"""

import functions_framework
from flask import Request

from berth.serve import Response, serve
from berth.verbs import reconcile as verb

answer = serve(verb.endpoint)


@functions_framework.http
def reconcile(request: Request) -> Response:
    return answer(request)
