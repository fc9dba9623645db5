"""One connection of redis-py's to one server. What goes wrong comes as redis-py's errors."""

from typing import Any, NamedTuple, Protocol

import redis

from berth.stores.redis.url import Address, Location


class Connection(Protocol):
    """What of redis-py's connections is used; they have no types themselves."""

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def send_command(self, *words: str | bytes | int) -> None: ...
    def read_response(self) -> Any: ...


class Line(NamedTuple):
    """A connection, and to whom."""

    at: Address
    connection: Connection


def connected(to: Location, to_connect: float, to_answer: float) -> Connection:
    """To the only host of `to`, within so many seconds."""
    (at,) = to.hosts
    options: dict[str, Any] = {
        "host": at.host,
        "port": at.port,
        "db": to.database,
        "username": to.user,
        "password": to.password,
        "socket_timeout": to_answer,
        "socket_connect_timeout": to_connect,
        "protocol": 2,
        "driver_info": None,  # one round trip less, and one right less that the user needs
    }
    kind: Any = redis.Connection
    if to.tls:
        kind = redis.SSLConnection
        options |= {"ssl_cert_reqs": "required", "ssl_check_hostname": True, "ssl_ca_certs": to.ca_certs}
    connection: Connection = kind(**options)
    connection.connect()
    return connection


def asked(connection: Connection, *words: str | bytes | int) -> Any:
    """The answer to one command; a connection that failed is closed."""
    try:
        connection.send_command(*words)
        return connection.read_response()
    except BaseException:
        connection.disconnect()
        raise
