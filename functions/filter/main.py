"""kube-scheduler's filter call: which nodes can take a pod, and why the others can't.
Run it: functions-framework --source functions/filter/main.py --target filter"""

import functions_framework

from berth.handlers.filter import endpoint
from berth.http.function import serve

filter = functions_framework.http(serve(endpoint))  # noqa: A001 - the target that users name
