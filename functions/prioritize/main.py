"""kube-scheduler's prioritize call: how well each node suits a pod.
Run it: functions-framework --source functions/prioritize/main.py --target prioritize"""

import functions_framework

from berth.handlers.prioritize import endpoint
from berth.http.function import serve

prioritize = functions_framework.http(serve(endpoint))
