"""kube-scheduler's calls under one URL: /filter, /prioritize, /preempt and /bind, with any path before them.
Run it: functions-framework --source functions/extender/main.py --target extender"""

import functions_framework

from berth.handlers.extender import router
from berth.http.function import serve

extender = functions_framework.http(serve(router))
