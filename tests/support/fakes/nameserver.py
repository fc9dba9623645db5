"""A name server on loopback as a cluster's is to a client: a Service's name leads to the gateway's, by CNAME,
and that one to an address, which may change."""

import socketserver
import struct
from contextlib import ExitStack
from typing import Self

from tests.support.servers.serving import serving

_A, _CNAME, _IN, _SECONDS = 1, 5, 1, 1
_POINTER = b"\xc0\x0c"  # the name that was asked for
GATEWAY = "gateway.example"


class NameServer:
    """Answers for every name with `address`; None: not at all."""

    def __init__(self) -> None:
        self.address: str | None = None
        self._stack, self._server = ExitStack(), _Server(self)
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._stack.enter_context(serving(self._server))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Server(socketserver.UDPServer):
    def __init__(self, names: NameServer) -> None:
        self.names = names
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        asked, socket = self.request
        address = self.server.names.address
        if address is None:
            return
        name_ends = asked.index(b"\0", 12) + 1
        (kind,) = struct.unpack(">H", asked[name_ends : name_ends + 2])
        found = [_record(_POINTER, _CNAME, _name(GATEWAY))]
        if kind == _A:
            found.append(_record(_name(GATEWAY), _A, bytes(map(int, address.split(".")))))
        head = asked[:2] + struct.pack(">5H", 0x8180, 1, len(found), 0, 0)
        socket.sendto(head + asked[12 : name_ends + 4] + b"".join(found), self.client_address)


def _record(name: bytes, kind: int, value: bytes) -> bytes:
    return name + struct.pack(">HHIH", kind, _IN, _SECONDS, len(value)) + value


def _name(text: str) -> bytes:
    return b"".join(bytes([len(part)]) + part.encode() for part in text.split(".")) + b"\0"
