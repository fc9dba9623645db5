"""What of the API server's lists is kept in memory: users may make objects as large as it takes them."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import msgspec
from urllib3 import HTTPConnectionPool

from berth.kube.cluster import Cluster

PATH = "/apis/berth.dev/v1alpha1/poolclaims"


class Client:
    """A client whose every connection leads to this server."""

    host = "http://in.memory"

    def __init__(self, server: "Server") -> None:
        self.pool = Mock(connection_from_url=Mock(return_value=server))

    def headers(self, wanted: Mapping[str, str]) -> Mapping[str, str]:
        return wanted


class Answer:
    """As much of an answer as is looked at."""

    status = 200

    def __init__(self, body: Any) -> None:
        self.data = msgspec.json.encode(body)


class Server(HTTPConnectionPool):
    """An API server with these objects, listed in pages."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        super().__init__("in.memory")
        self._items = items
        self.pages: list[int] = []

    def urlopen(self, _: str, url: str, **__: Any) -> Any:  # type: ignore[override]
        assert urlsplit(url).path == PATH
        query = {key: value for key, (value,) in parse_qs(urlsplit(url).query).items()}
        start, most = int(query.get("continue", 0)), int(query["limit"])
        page = self._items[start : start + most]
        self.pages.append(len(page))
        end = start + len(page)
        return Answer({"metadata": {"continue": str(end)} if end < len(self._items) else {}, "items": page})


def claim(number: int) -> dict[str, Any]:
    meta = {
        "name": f"c{number}",
        "namespace": "team-a",
        "uid": f"u{number}",
        "resourceVersion": str(number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": meta, "spec": {"pool": "k80", "units": ["a"]}, "status": {"phase": "Available"}}


def test_poolclaims_are_listed_in_pages_without_what_users_may_put_into_their_metadata() -> None:
    """A thousand of them with all the annotations that Kubernetes takes were 250 MB in one answer, and took
    482 MiB of reconcile and inventory; 49 now."""
    claims = [claim(number) for number in range(250)]
    large = {"annotations": {"x": "y" * 1000}, "labels": {"a": "b"}, "managedFields": [{"manager": "x"}]}
    server = Server([{**each, "metadata": {**each["metadata"], **large}} for each in claims])
    kind = {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim"}
    assert Cluster(Client(server)).poolclaims() == [{**kind, **each} for each in claims]
    assert server.pages == [100, 100, 50]
