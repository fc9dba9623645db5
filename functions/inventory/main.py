"""Events of nodes, Pools and PoolClaims: take capacities from the cluster; POST /external, with the token.
Run it: functions-framework --source functions/inventory/main.py --target inventory"""

import functions_framework

from berth.handlers.inventory import router
from berth.http.function import serve

inventory = functions_framework.http(serve(router))
