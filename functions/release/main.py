"""Pod events: free the units of a pod that is gone or finished, wake who waits for them.
Run it: functions-framework --source functions/release/main.py --target release"""

import functions_framework

from berth.handlers.release import endpoint
from berth.http.function import serve

release = functions_framework.http(serve(endpoint))
