"""Events of nodes, Pools and PoolClaims: take capacities from the cluster; POST /external, with the token.
Run it: functions-framework --source functions/inventory/main.py --target inventory"""

import functions_framework
from flask import Request

from berth.handlers import inventory as verb
from berth.http.function import Response, serve

answer = serve(verb.router)


@functions_framework.http
def inventory(request: Request) -> Response:
    return answer(request)
