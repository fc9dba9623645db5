"""A page, an API and metrics of the ledger and of who waits; it only reads.
Run it: functions-framework --source functions/status/main.py --target status"""

import functions_framework

from berth.handlers.status import endpoint
from berth.http.function import serve

status = functions_framework.http(serve(endpoint))
