"""Node and Pool events: take capacities from the cluster as it is.
Run it: functions-framework --source functions/inventory/main.py --target inventory"""

import functions_framework
from flask import Request

from berth.serve import Response, serve
from berth.verbs import inventory as verb

answer = serve(verb.endpoint)


@functions_framework.http
def inventory(request: Request) -> Response:
    return answer(request)
