"""One ledger's table in the stand-in for DynamoDB, stores that have it open, and what AWS may answer.
A store opened with a time of its own waits for nothing: sleeping moves it."""

from typing import Any

from berth.server_clock import ServerClock, uptime
from berth.stores.dynamodb import DynamoDbStore
from berth.stores.dynamodb.url import parse
from tests.support.builders.ledgers import Time
from tests.support.servers.motoserver import PATIENT, MotoServer


class Table:
    """`store` opens it, as another process would."""

    def __init__(self, server: MotoServer) -> None:
        self.server, self.name = server, server.new_table()
        self._opened: list[DynamoDbStore] = []
        server.make(self.name)

    @property
    def url(self) -> str:
        return self.server.url(self.name, PATIENT)

    def store(self, time: Time | None = None, **more: Any) -> DynamoDbStore:
        """With `time` the store's own; its retries then end at once."""
        clock = ServerClock(uptime if time is None else time)
        options: dict[str, Any] = {"clock": clock} | more
        if time is not None:
            options["sleep"] = time.advance
        self._opened.append(DynamoDbStore(parse(self.url), **options))
        return self._opened[-1]

    def operations(self) -> dict[str, int]:
        """What was asked of the table since this was called last."""
        return dict(self.server.asked(self.name)["operations"])

    def close(self) -> None:
        self.server.mend(self.name)
        for each in self._opened:
            each.close()


def refused(code: str, message: str = "AWS said so", status: int = 400) -> dict[str, Any]:
    kind = f"com.amazonaws.dynamodb.v20120810#{code}"
    return {"status": status, "answer": {"__type": kind, "message": message}}


def cancelled(*codes: str, message: str = "AWS said so") -> dict[str, Any]:
    """A transaction's end, with the reason of each of its items."""
    reasons = [{"Code": "None"} if code == "None" else {"Code": code, "Message": message} for code in codes]
    found = refused("TransactionCanceledException", f"Transaction cancelled [{', '.join(codes)}]")
    found["answer"]["CancellationReasons"] = reasons
    return found
