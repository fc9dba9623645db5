"""A clock's tick: make the ledger equal to the cluster.
Run it: functions-framework --source functions/reconcile/main.py --target reconcile"""

import functions_framework

from berth.handlers.reconcile import endpoint
from berth.http.function import serve

reconcile = functions_framework.http(serve(endpoint))
