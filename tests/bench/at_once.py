"""An API server that answers at once: any pod that is asked for waits, until it is bound, or deleted.
It knows bind's and release's calls and no other rule; GET /bound tells each pod's nodes, and forgets them."""

import argparse
import asyncio
import re
from collections import defaultdict
from collections.abc import Callable

import msgspec

Answer = Callable[[str, str, bytes], tuple[int, bytes]]
"""What is answered, a status and a body, to a method, a path and a body."""

_POD = re.compile(
    r"/api/v1/namespaces/default/pods/(?P<name>(?P<pool>[a-z-]+)\.(?P<uid>[0-9a-f-]+))(/binding)?"
)
_IDENTITY = b'{"metadata":{"name":"kube-system","uid":"bench"}}'
_GONE = b'{"message":"nothing is known of it here"}'
_ANSWER = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


def pod_name(pool: str, uid: str) -> str:
    """Return the name of the pod with this UID that asks for one unit of the pool."""
    return f"{pool}.{uid}"


class Pods:
    """Who was bound where, as often as it was, and who is gone; all others wait, but no list has them."""

    def __init__(self) -> None:
        self._nodes: defaultdict[str, list[str]] = defaultdict(list)
        self._deleted: set[str] = set()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/bound":
            nodes, self._nodes = self._nodes, defaultdict(list)
            return 200, msgspec.json.encode(nodes)
        if path.endswith("/kube-system"):
            return 200, _IDENTITY
        if path.startswith("/api/v1/pods?"):
            return 200, b'{"items":[]}'
        if path.startswith("/apis/events.k8s.io/"):
            return 201, b"{}"
        match = _POD.fullmatch(path)
        if match is None or match["name"] in self._deleted:
            return 404, _GONE
        name = match["name"]
        if method == "DELETE":
            self._deleted.add(name)
            return 200, b"{}"
        if method == "GET":
            return 200, msgspec.json.encode(self._pod(name, match["pool"], match["uid"]))
        binding = msgspec.json.decode(body)
        if binding["metadata"]["resourceVersion"] != self._version(name):
            return 409, b'{"message":"it was written since"}'
        self._nodes[name].append(binding["target"]["name"])
        return 201, b'{"kind":"Status","status":"Success"}'

    def _version(self, name: str) -> str:
        return str(1 + len(self._nodes.get(name, ())))

    def _pod(self, name: str, pool: str, uid: str) -> object:
        requests = {"cpu": "100m", f"berth.dev/{pool}": "1"}
        container = {"name": "main", "resources": {"requests": requests, "limits": requests}}
        nodes = self._nodes.get(name)
        return {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": uid,
                "resourceVersion": self._version(name),
            },
            "spec": {
                "schedulerName": "berth",
                "containers": [container],
                **({"nodeName": nodes[-1]} if nodes else {}),
            },
            "status": {"phase": "Pending"},
        }


class _Connection(asyncio.Protocol):
    def __init__(self, answer: Answer) -> None:
        self._answer, self._received = answer, b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].decode("latin-1")
            size = re.search(r"(?im)^content-length: *(\d+)", head)
            whole = end + 4 + (int(size[1]) if size else 0)
            if len(self._received) < whole:
                return
            body, self._received = self._received[end + 4 : whole], self._received[whole:]
            method, path, _ = head.split(" ", 2)
            status, content = self._answer(method, path, body)
            self._transport.write(_ANSWER % (status, len(content), content))


def serve(port: int, answer: Answer) -> None:
    """Answer whoever asks at this port, one after another, for ever."""
    asyncio.run(_serve(port, answer))


async def _serve(port: int, answer: Answer) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(answer), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    serve(parser.parse_args().port, Pods().answer)


if __name__ == "__main__":
    main()
