"""A scheduler extender that counts by one number a node: INCR at bind, DECR at a pod's delete event.
Many schedulers in the field count so, and their bugs are what the demonstration shows: a lost delete leaks
for good, a restart undercounts, several pods pass a filter that is behind. Where they were seen is in
docs/kubernetes.md#what-went-wrong-elsewhere. There is no holder by UID, no reservation, no look at the API
server, no reconcile, no wake.

It is not made worse than they are: the numbers are in a database and outlive the process, each change is
one atomic statement, a Binding that failed is taken back, and no number falls below zero. A pod is one unit.
"""

import contextlib
import http.client
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

Json = dict[str, Any]

_TABLE = "CREATE TABLE IF NOT EXISTS counts (node TEXT PRIMARY KEY, used INTEGER NOT NULL)"
_INCR = "INSERT INTO counts VALUES (?, 1) ON CONFLICT (node) DO UPDATE SET used = used + 1"
_DECR = "UPDATE counts SET used = max(0, used - 1) WHERE node = ?"
_SECONDS = 5.0


class Counter:
    """`capacity` units on each node; `api` is the URL of an API server that asks for no credentials."""

    def __init__(self, file: Path, capacity: int, api: str) -> None:
        self._file, self._capacity, self._api = file, capacity, api

    def answer(self, path: str, event: str, body: Json) -> Any:
        """Answer one call of kube-scheduler, by its path, or one CloudEvent, by its type."""
        calls = {"filter": self.filter, "prioritize": self.prioritize, "bind": self.bind}
        if (call := calls.get(path.strip("/"))) is not None:
            return call(body)
        if event.endswith(".delete") and body.get("kind") == "Pod":
            self.deleted(body)
        return {}

    def used(self) -> dict[str, int]:
        with self._open() as counts:
            return dict(counts.execute("SELECT node, used FROM counts").fetchall())

    def filter(self, call: Json) -> Json:
        """Compare each node's number with its capacity."""
        used = self.used()
        full = [node for node in call["NodeNames"] if used.get(node, 0) >= self._capacity]
        return {
            "NodeNames": [node for node in call["NodeNames"] if node not in full],
            "FailedNodes": dict.fromkeys(full, f"0 of {self._capacity} free"),
            "Error": "",
        }

    def prioritize(self, call: Json) -> list[Json]:
        """Most free first, from 0 to 10."""
        used = self.used()
        free = {node: max(0, self._capacity - used.get(node, 0)) for node in call["NodeNames"]}
        return [{"Host": node, "Score": 10 * units // self._capacity} for node, units in free.items()]

    def bind(self, call: Json) -> Json:
        """Count the unit, then make the Binding."""
        self._change(_INCR, call["Node"])
        try:
            error = self._bind(call)
        except (OSError, http.client.HTTPException) as failure:
            error = f"the API server did not answer ({type(failure).__name__})"
        if error:
            self._change(_DECR, call["Node"])
        return {"Error": error}

    def deleted(self, pod: Json) -> None:
        """Count the unit back, if the pod had a node."""
        if node := pod.get("spec", {}).get("nodeName"):
            self._change(_DECR, node)

    def _bind(self, call: Json) -> str:
        """Why the pod could not be bound, empty if it was."""
        namespace, name = quote(call["PodNamespace"], safe=""), quote(call["PodName"], safe="")
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": call["PodName"], "uid": call["PodUID"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": call["Node"]},
        }
        connection = http.client.HTTPConnection(urlsplit(self._api).netloc, timeout=_SECONDS)
        with contextlib.closing(connection):
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            text = reply.read().decode(errors="replace")
        return "" if reply.status < 300 else f"the API server answered {reply.status}: {text}"

    def _change(self, statement: str, node: str) -> None:
        with self._open() as counts:
            counts.execute(statement, (node,))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # Anew for each call: a file that was deleted must not live on in this process.
        with contextlib.closing(sqlite3.connect(self._file, timeout=_SECONDS)) as counts, counts:
            counts.execute(_TABLE)
            yield counts
