"""kube-scheduler's bind call: reserve a pod's units, bind it, confirm.
Run it: functions-framework --source functions/bind/main.py --target bind"""

import functions_framework

from berth.handlers.bind import endpoint
from berth.http.function import serve

bind = functions_framework.http(serve(endpoint))
