"""DynamoDB as moto knows it, in a process of its own that several others share; with what faults need.

moto is a stand-in. It has no isolation between threads (so one request is served at a time), no TableId,
no idempotent tokens, gives a transaction's reads at most 25 items, never says TransactionConflict, and its
index never lags: motodynamo.py adds these as AWS documents them. What it cannot show is in docs/decisions.
"""

import atexit
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

REGION = "eu-central-1"
# By AWS' own rules, and for every process that a test starts. They are no secret: moto asks for none.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
_ROOT = Path(__file__).resolve().parents[3]
_SECONDS = 60.0
PATIENT = 20  # seconds for a call, where a test is not about time: a busy machine is no fault


class MotoServerError(Exception):
    """The server did not start, or did not do what it was told; the text ends with its log."""


@dataclass
class MotoServer:
    """Gone with the process that started it: it ends when its standard input does."""

    folder: Path
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _tables: int = field(default=0, repr=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it listens, on a port that the kernel chose."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.servers.motoapp"],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self.stop)
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        if not told.strip().isdigit():
            self.stop()
            raise MotoServerError(f"moto's server did not start; its log:\n{self._log.read_text()}")
        self.port = int(told)

    def stop(self) -> None:
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait(_SECONDS)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, table: str, seconds: int = 1) -> str:
        return f"dynamodb://{table}?region={REGION}&endpoint={self.endpoint}&timeout={seconds}"

    def new_table(self) -> str:
        """A name that no test before had."""
        self._tables += 1
        return f"berth-{os.getpid()}-{self._tables}"

    # What the server does beside serving; each only to one table

    def make(self, table: str) -> None:
        """As `berth store init` makes it, in one go."""
        self.tell("make", table)

    def lose(self, table: str) -> None:
        """Delete the table and make it anew, with nothing in between."""
        self.tell("lose", table)

    def backup(self, table: str) -> None:
        """Remember what is in the table."""
        self.tell("backup", table)

    def restore(self, table: str) -> None:
        """Delete the table and put a new one in its place that holds what was remembered."""
        self.tell("restore", table)

    def drop(self, table: str) -> None:
        self.tell("drop", table)

    def forget(self, table: str, key: str) -> None:
        """Take an item away, as somebody might by hand."""
        self.tell("forget", table, {"key": key})

    def describe(self, table: str, change: Mapping[str, object]) -> None:
        """From now on the table is described so, as to these parts."""
        self.tell("describe", table, {"change": dict(change)})

    def fault(self, table: str, operation: str, times: int = 1, error: str = "", **what: Any) -> None:
        """The next requests of this operation ("" for any) end so: see `Fault` in motodynamo.py. `error` is
        a code for short."""
        if error:
            status = 500 if error.startswith("Internal") else 400
            what |= {"status": status, "answer": {"__type": f"#{error}", "message": error}}
        self.tell("fault", table, {"operation": operation, "times": times, **what})

    def mend(self, table: str) -> None:
        """No faults any more; whoever hangs goes on."""
        self.tell("mend", table)

    def lag(self, table: str, looks: int) -> None:
        """The next looks at the index see it as it is now."""
        self.tell("lag", table, {"looks": looks})

    def collide(self, table: str) -> None:
        """From now on transactions that meet on an item are cancelled, as DynamoDB does it."""
        self.tell("collide", table)

    def deny(self, table: str, *actions: str) -> None:
        """From now on these actions of IAM are refused."""
        self.tell("deny", table, {"actions": list(actions)})

    def asked(self, table: str) -> Mapping[str, Any]:
        """What was asked for since the last time: `operations`, counted, and `actions` of IAM."""
        found: Mapping[str, Any] = self.tell("asked", table)
        return found

    def exists(self, table: str) -> bool:
        return bool(self.tell("exists", table))

    def call(self, operation: str, request: Mapping[str, Any]) -> Any:
        """Ask moto itself, past all faults."""
        return self.tell("call", request["TableName"], {"operation": operation, "request": dict(request)})

    def items(self, table: str) -> dict[str, dict[str, Any]]:
        """All items by key, as DynamoDB writes them."""
        found: dict[str, dict[str, Any]] = self.tell("items", table)
        return found

    def tell(self, what: str, table: str, more: Mapping[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            connection.request("POST", f"/berth/{what}", json.dumps({"table": table, **(more or {})}))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise MotoServerError(f"{what}: {body.decode()}\n{self._log.read_text()[-4000:]}")
        return json.loads(body)

    @property
    def _log(self) -> Path:
        return self.folder / "moto.log"
