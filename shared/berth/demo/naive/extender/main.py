"""The naive counter as a function: kube-scheduler's calls by their paths, CloudEvents at any other.
Run it: functions-framework --source main.py --target extender"""

import json
import os
from pathlib import Path

import functions_framework
from flask import Request

from berth.demo.naive.counter import Counter

counter = Counter(
    Path(os.environ["NAIVE_COUNTS"]), int(os.environ["NAIVE_CAPACITY"]), os.environ["NAIVE_API"]
)


@functions_framework.http
def extender(request: Request) -> tuple[str, int, dict[str, str]]:
    body = request.get_json(silent=True) or {}
    answer = counter.answer(request.path, request.headers.get("Ce-Type", ""), body)
    return json.dumps(answer), 200, {"Content-Type": "application/json"}
