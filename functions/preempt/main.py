"""kube-scheduler's preempt call: which of its candidates would really make room for a pod.
Run it: functions-framework --source functions/preempt/main.py --target preempt"""

import functions_framework

from berth.handlers.preempt import endpoint
from berth.http.function import serve

preempt = functions_framework.http(serve(endpoint))
