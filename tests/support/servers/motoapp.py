"""The process behind motoserver.py: moto's DynamoDB (motodynamo.py) over HTTP, and what tests tell it.
It ends with its standard input, which is the process that started it."""

import base64
import copy
import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from berth.stores.dynamodb.table import FORM
from tests.support.servers.motodynamo import Body, Dynamo, Fault, LostError, RefusedError

# What tests tell it


def make(dynamo: Dynamo, body: Body) -> object:
    return dynamo.call("CreateTable", {"TableName": body["table"], **copy.deepcopy(FORM)}) and {}


def drop(dynamo: Dynamo, body: Body) -> object:
    return dynamo.call("DeleteTable", {"TableName": body["table"]}) and {}


def lose(dynamo: Dynamo, body: Body) -> object:
    drop(dynamo, body)
    return make(dynamo, body)


def backup(dynamo: Dynamo, body: Body) -> object:
    dynamo.watch(body["table"]).backup = copy.deepcopy(dict(dynamo.tables()[body["table"]].items))
    return {}


def restore(dynamo: Dynamo, body: Body) -> object:
    lose(dynamo, body)
    dynamo.tables()[body["table"]].items.update(copy.deepcopy(dynamo.watch(body["table"]).backup))
    return {}


def fault(dynamo: Dynamo, body: Body) -> object:
    watched = dynamo.watch(body.pop("table"))
    watched.mended.clear()
    watched.faults.append(Fault(**body))
    return {}


def mend(dynamo: Dynamo, body: Body) -> object:
    watched = dynamo.watch(body["table"])
    watched.faults, watched.denied = [], frozenset()
    watched.mended.set()
    return {}


def forget(dynamo: Dynamo, body: Body) -> object:
    found = dynamo.tables()[body["table"]].items
    del found[next(each for each in found if each.value == body["key"])]
    return {}


def describe(dynamo: Dynamo, body: Body) -> object:
    dynamo.watch(body["table"]).described = body["change"]
    return {}


def lag(dynamo: Dynamo, body: Body) -> object:
    watched = dynamo.watch(body["table"])
    watched.looks = body["looks"]
    watched.old_index = copy.copy(dynamo.tables()[body["table"]].items)
    return {}


def collide(dynamo: Dynamo, body: Body) -> object:
    dynamo.watch(body["table"]).collides = True
    return {}


def deny(dynamo: Dynamo, body: Body) -> object:
    dynamo.watch(body["table"]).denied = frozenset(body["actions"])
    return {}


def asked(dynamo: Dynamo, body: Body) -> object:
    watched = dynamo.watch(body["table"])
    told = {"operations": dict(watched.asked), "actions": sorted(watched.actions)}
    watched.asked, watched.actions = Counter(), set()
    return told


def exists(dynamo: Dynamo, body: Body) -> object:
    return body["table"] in dynamo.tables()


def call(dynamo: Dynamo, body: Body) -> object:
    return dynamo.call(body["operation"], body["request"])


def items(dynamo: Dynamo, body: Body) -> object:
    found = dynamo.tables()[body["table"]].items.values()
    return {each.hash_key.value: each.describe_attrs(None)["Item"] for each in found}


TOLD: dict[str, Callable[[Dynamo, Body], object]] = {
    each.__name__: each
    for each in (
        *(make, drop, lose, backup, restore, forget, describe, exists),
        *(fault, mend, lag, collide, deny, asked, items, call),
    )
}


# HTTP


def _decoded(found: Body) -> Body:
    """Binary attributes are bytes to moto."""
    return {"B": base64.b64decode(found["B"])} if found.keys() == {"B"} else found


def _plain(value: Any) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "to_regular_json"):
        return value.to_regular_json()
    return value.timestamp() if hasattr(value, "timestamp") else str(value)


class Handler(BaseHTTPRequestHandler):
    """Keeps connections alive, and answers in one write."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    dynamo = Dynamo()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            status, body = 200, self._answer(raw)
        except RefusedError as refused:
            status, body = refused.status, refused.body
        except LostError:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(status, json.dumps(body, default=_plain).encode())

    def _answer(self, raw: bytes) -> Any:
        if self.path.startswith("/berth/"):
            with self.dynamo.lock:
                return TOLD[self.path.removeprefix("/berth/")](self.dynamo, json.loads(raw))
        operation = str(self.headers["X-Amz-Target"]).partition(".")[2]
        return self.dynamo.answer(operation, json.loads(raw, object_hook=_decoded), raw)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing of each request."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def main() -> None:
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.buffer.read()  # ends with whoever started us


if __name__ == "__main__":
    main()
