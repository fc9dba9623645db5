"""Why a connection failed: the system's own reason, however deep it is hidden, in words that never vary."""

import errno
import os
import socket
import ssl
from contextlib import closing

import botocore.exceptions
import pytest
import urllib3

from berth.errors import beneath, reason
from berth.local.ports import free_port

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def caused(outer: Exception, inner: BaseException) -> Exception:
    outer.__cause__ = inner
    return outer


def met(outer: Exception, inner: BaseException) -> Exception:
    outer.__context__ = inner
    return outer


def hidden(inner: Exception) -> Exception:
    error: Exception = botocore.exceptions.EndpointConnectionError(endpoint_url="http://host", error=inner)
    return error


def tried_often(inner: Exception) -> Exception:
    return urllib3.exceptions.MaxRetryError(urllib3.HTTPConnectionPool("host"), "/", inner)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (REFUSED, "connection refused"),
        (OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)), "no route to host"),
        (caused(RuntimeError("at 0x7f1"), REFUSED), "connection refused"),
        (met(RuntimeError(), UNKNOWN), "name or service not known"),
        (hidden(caused(RuntimeError(), REFUSED)), "connection refused"),
        (tried_often(caused(RuntimeError(), UNKNOWN)), "name or service not known"),
        (caused(RuntimeError(), TimeoutError("timed out")), "no answer in time"),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), "connection timed out"),
        (caused(RuntimeError(), ConnectionResetError()), "the connection was closed"),
        (RuntimeError("no cause"), "the connection was closed"),
        (None, "the connection was closed"),
    ],
)
def test_the_reason_is_the_system_s_in_small_letters(error: Exception | None, text: str) -> None:
    assert reason(error) == text


def test_a_caller_that_knows_how_long_it_waited_may_say_so() -> None:
    assert reason(TimeoutError("timed out"), "no answer within 1 s") == "no answer within 1 s"


def test_the_same_cause_has_the_same_words() -> None:
    url, texts = f"http://127.0.0.1:{free_port()}/", set()
    for _ in range(2):
        with urllib3.PoolManager() as http, pytest.raises(urllib3.exceptions.HTTPError) as caught:
            http.request("GET", url, retries=False)
        texts.add(reason(caught.value))
        assert isinstance(beneath(caught.value), ConnectionRefusedError)
    assert texts == {"connection refused"}


def test_a_server_without_tls_is_said_to_be_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, closing(socket.socket()) as asking:
        asking.connect(server.getsockname())
        answering, _ = server.accept()
        with closing(answering):
            answering.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(ssl.SSLError) as caught:
                ssl.create_default_context().wrap_socket(asking, server_hostname="host")
    assert reason(caught.value) == "wrong version number"
