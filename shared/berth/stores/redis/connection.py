"""One connection of redis-py's to one server. What goes wrong comes as redis-py's errors."""

from typing import Any, NamedTuple, Protocol

import redis

from berth.stores.redis.url import Address, RedisUrl


class Connection(Protocol):
    """What is used of redis-py's connections, which have no types themselves."""

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def send_command(self, *words: str | bytes | int) -> None: ...
    def send_packed_command(self, command: list[bytes]) -> None: ...
    def read_response(self, *, timeout: float = ...) -> Any: ...


class NodeConnection(NamedTuple):
    """A connection, and the address of the server at its other end."""

    address: Address
    connection: Connection


def connect(url: RedisUrl, to_connect: float, to_answer: float) -> Connection:
    """Return a connection to the only host of `url`; the times are in seconds."""
    (address,) = url.hosts
    options: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "db": url.database,
        "username": url.user,
        "password": url.password,
        "socket_timeout": to_answer,
        "socket_connect_timeout": to_connect,
        "protocol": 2,
        "driver_info": None,  # one round trip less, and one right less that the user needs
    }
    kind: Any = redis.Connection
    if url.tls:
        kind = redis.SSLConnection
        options |= {"ssl_cert_reqs": "required", "ssl_check_hostname": True, "ssl_ca_certs": url.ca_certs}
    connection: Connection = kind(**options)
    connection.connect()
    return connection


def packed(*words: str | bytes | int) -> bytes:
    """Return a command as it is sent."""
    texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts)


def ask(connection: Connection, *words: str | bytes | int) -> Any:
    """Return the answer to one command; close a connection that failed."""
    try:
        connection.send_command(*words)
        return connection.read_response()
    except BaseException:
        connection.disconnect()
        raise
