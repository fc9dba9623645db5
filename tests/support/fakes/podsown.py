"""What a pod finds of its cluster: the service's address in its environment, its account's files, and an API
server behind them that knows TokenReviews alone."""

import json
import ssl
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from tests.support.builders.certificates import self_signed
from tests.support.servers.serving import serving

TOKEN = "e30.eyJhdWQiOlsiYmVydGgiXX0.c2ln"  # its claims: {"aud":["berth"]}
ACCOUNT = "berth/berth-scheduler"


class Pod:
    """`environment` is what its processes get; `reviewed` which tokens were asked about, `bearer` by whom."""

    def __init__(self, folder: Path) -> None:
        self.account = folder / "account"
        certificate, key = self_signed(self.account, address=(127, 0, 0, 1))
        (self.account / "ca.crt").write_bytes(certificate.read_bytes())
        (self.account / "token").write_text("own\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.reviewed: list[str] = []
        self.bearer: list[str] = []
        self._stack, self._server = ExitStack(), _Server(self)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.environment = {
            "ACCOUNT": str(self.account),
            "BERTH_AUTH_ACCOUNTS": ACCOUNT,
            "HOME": str(folder),  # no kubeconfig there
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._server.server_address[1]),
            "TOKEN": TOKEN,
        }

    def __enter__(self) -> Self:
        self._stack.enter_context(serving(self._server))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Server(ThreadingHTTPServer):
    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/apis/authentication.k8s.io/v1/tokenreviews"
        token = asked["spec"]["token"]
        self.server.pod.reviewed.append(token)
        self.server.pod.bearer.append(self.headers["Authorization"])
        user = {"username": f"system:serviceaccount:{ACCOUNT.replace('/', ':')}"}
        good = {"authenticated": True, "user": user, "audiences": asked["spec"]["audiences"]}
        body = json.dumps({"status": good if token == TOKEN else {"authenticated": False}}).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
