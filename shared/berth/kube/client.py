"""One API server of Kubernetes: where it is, with whose rights, single requests, and lines of a watch.
It knows no resource. What an answer means the caller decides. What changes something is sent once."""

import os
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol
from urllib.parse import urlsplit

import msgspec
import urllib3

from berth.errors import (
    ClusterRefusedError,
    ClusterUnavailableError,
    NoClusterError,
    SettingsError,
    alternatives,
    reason,
)
from berth.kube.connection import lean
from berth.kube.token_file import TokenFile
from berth.server_clock import ServerClock
from berth.telemetry import calls
from berth.telemetry.traces import Facts

CONTEXT = "BERTH_CONTEXT"
"""The variable that names a context of the kubeconfig, in place of its current one."""

DEFAULT_TIMEOUT = 10.0  # seconds, for calls with no deadline above them
_JSON = "application/json"
_LONGEST = 1000  # characters of a path that a message shows: names may come from anybody
_CONNECTIONS = 64  # bind runs 48 threads
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ONCE = urllib3.Retry(False)
_REFUSED = (401, 403)  # nothing was done; with a token that was replaced meanwhile it may be


class Client(Protocol):
    """How one API server is reached, and as whom. `pool` is urllib3's PoolManager."""

    host: str
    pool: Any

    def headers(self, plain: Mapping[str, str]) -> Mapping[str, str]:
        """Return these headers and the credential's."""

    def renew(self) -> None:
        """Read a credential that is kept in a file once more, now."""


class _Status(msgspec.Struct):
    message: str = ""


class Request(NamedTuple):
    """A request, with its body as JSON. `timeout` is in seconds; `again`: it may be done twice."""

    method: str
    path: str
    timeout: float = DEFAULT_TIMEOUT
    body: Any = None
    content_type: str = _JSON
    accept: str = _JSON
    again: bool = False


class _Way(NamedTuple):
    """What sends a request, the start of the URLs for it, and headers that all requests have."""

    send: Callable[..., Any]
    root: str
    headers: Mapping[str, str]


class ApiServer:
    """Requests on the client's own connections and with its credentials.

    Every call may raise ClusterUnavailableError (no answer in time, 429, 5xx: it may have been done) or
    ClusterRefusedError (4xx: it was not done). Safe to use from many threads.
    """

    def __init__(self, api: Client, connections: int = 0) -> None:
        """`connections`: keep so many that nobody else uses; 0: share the client's. A proxy's are shared."""
        self._api, self._connections = api, connections
        self.host, self.clock = api.host, ServerClock()

    def call(self, request: Request) -> bytes:
        """Return the answer's content."""
        response = self._send(request, whole=True)
        content: bytes = response.data
        if response.status >= 300:
            _explain(request, response.status, content)
        return content

    def header(self, request: Request, name: str) -> str:
        """Return a header of the answer, empty if it has none; the content is not looked at."""
        response = self._send(request, whole=False)
        try:
            return str(response.headers.get(name, ""))
        finally:
            response.close()

    def lines(self, request: Request) -> Generator[bytes, None, None]:
        """Yield the answer's lines as they come, until the server ends it."""
        response = self._send(request, whole=False)
        try:
            if response.status != 200:
                _explain(request, response.status, response.read())
            yield from _lines(response)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterUnavailableError(
                f"the watch of {request.path.partition('?')[0]} at {self.host} broke off: {error}"
            ) from error
        finally:
            response.close()

    def close(self) -> None:
        self._api.pool.clear()

    @cached_property
    def _way(self) -> _Way:
        own = {"maxsize": self._connections} if self._connections else None
        pool, url = lean(self._api.pool.connection_from_url(self.host, own)), urlsplit(self.host)
        headers = {"Host": url.netloc.rpartition("@")[2], "Accept-Encoding": "identity"}
        if pool.proxy is not None:  # some of which want the whole URL
            return _Way(self._api.pool.urlopen, self.host, headers)
        return _Way(pool.urlopen, url.path, headers)

    def _send(self, request: Request, *, whole: bool) -> Any:
        """Return the answer, read to its end if it is wanted `whole`, to a request in the call's trace."""
        path = request.path.partition("?")[0][:_LONGEST]
        facts: Facts = {"http.request.method": request.method, "url.path": path}
        with calls.part(f"kubernetes {request.method}", facts) as span:
            traceparent = calls.outgoing(span)
            response = self._answered(
                request, {"traceparent": traceparent} if traceparent else {}, whole=whole
            )
            span.set({"http.response.status_code": response.status})
            return response

    def _answered(self, request: Request, more: Mapping[str, str], *, whole: bool) -> Any:
        sent = self.clock.local()
        response = self._sent(request, more, whole=whole)
        # Of a retry only this is known: it was sent later than the first try.
        headers: Mapping[str, str] = getattr(response, "headers", {})
        self.clock.learn(headers.get("Date"), sent, self.clock.local())
        return response

    def _sent(self, request: Request, more: Mapping[str, str], *, whole: bool) -> Any:
        """Return the answer; of a request that was refused for a token that was replaced, the answer to the
        same request with the new token."""
        try:
            way = self._way
            plain = {**way.headers, "Accept": request.accept, "Content-Type": request.content_type, **more}
            headers = self._api.headers(plain)
            response = _sent_by(way, request, headers, whole=whole)
            if response.status not in _REFUSED:
                return response
            self._api.renew()
            if (renewed := self._api.headers(plain)) == headers:
                return response
            if not whole:
                response.close()
            return _sent_by(way, request, renewed, whole=whole)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> ClusterUnavailableError:
        return ClusterUnavailableError(f"the API server at {self.host} did not answer ({reason(error)})")


def _sent_by(way: _Way, request: Request, headers: Mapping[str, str], *, whole: bool) -> Any:
    # Not by the kubernetes client's models: those cost more, and raise after a Binding that succeeded
    # (docs/kubernetes.md#a-binding-by-the-python-client).
    send: Callable[[], Any] = partial(
        way.send,
        request.method,
        f"{way.root}{request.path}",
        headers=headers,
        preload_content=whole,
        body=None if request.body is None else msgspec.json.encode(request.body),
        timeout=urllib3.Timeout(total=request.timeout),
        retries=_ONCE,
        redirect=False,
        assert_same_host=False,
    )
    if request.method == "GET" or request.again:
        # The connection may have been closed while idle. What changes nothing is sent again at once, but not
        # after a time-out (the caller has a deadline); bind decides on a second Binding.
        with suppress(urllib3.exceptions.ProtocolError):
            return send()
    return send()


def connect() -> ApiServer:
    """Return the API server that KUBECONFIG or the pod's own account names. Raises as `configured`."""
    return ApiServer(configured())


# What the kubernetes client raises for a file that is no kubeconfig; the texts of these help nobody.
_NOT_ONE = (AttributeError, LookupError, TypeError, RecursionError)


def configured(monotonic: Callable[[], float] = time.monotonic) -> Client:
    """Return the client for the API server of `connect`; no request is sent. Raises NoClusterError where none
    is named, SettingsError where KUBECONFIG or the context is wrong."""
    # The kubernetes client's own rules, but with KUBECONFIG as it is now, not as it was at that import.
    path, context = kubeconfigs(), os.environ.get(CONTEXT) or None
    if "KUBECONFIG" in os.environ or Path(path).exists():
        return _by_kubeconfig(path, context, monotonic)
    if context is not None:
        raise SettingsError(
            f"there is no kubeconfig {path} that has context {context}: set KUBECONFIG to one"
        )
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise NoClusterError(
            "no cluster to talk to: no kubeconfig found (KUBECONFIG, ~/.kube/config); set KUBECONFIG to one"
        )
    try:
        return InCluster(os.environ, _ACCOUNT, monotonic)
    except (OSError, ValueError) as error:
        raise _without_a_cluster(error, "") from error


def library_client(monotonic: Callable[[], float] = time.monotonic) -> Any:
    """Return the kubernetes client's own ApiClient for the API server of `configured`, and raise as that."""
    from kubernetes import client, config

    named = configured(monotonic)
    if isinstance(named, _Kubeconfig):
        return named.api
    settings = client.Configuration()
    config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
    return client.ApiClient(settings)


def kubeconfigs() -> str:
    """Return the kubeconfig, or several of them joined by os.pathsep, as KUBECONFIG names them."""
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def current_context(path: str) -> str:
    """Return the context that this kubeconfig, or the first of several, calls current; empty: none."""
    return next(filter(None, (str(one.get("current-context") or "") for _, one in _readable(path))), "")


def context_namespace() -> str:
    """Return the namespace that the context in use names, as kubectl takes it; default where it names none.

    Raises SettingsError for a context that there is not.
    """
    path = kubeconfigs()
    if name := os.environ.get(CONTEXT):
        _require_context(name, path)
    context = _contexts(path).get(name or current_context(path))
    return str(context.get("namespace") or "default") if isinstance(context, dict) else "default"


class InCluster:
    """The cluster of the pod in which this process runs, as the pod's account.

    It does what the kubernetes client does for that, without its 0.4 s of imports and 44 MiB: filter asks the
    API server who calls, and has to start quickly.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        account: Path,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ValueError outside a pod, and OSError or ValueError for a file of the account."""
        try:
            host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
        except KeyError as error:
            raise ValueError("Service host/port is not set") from error
        self.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._token = TokenFile(account / "token", monotonic)
        authority = account / "ca.crt"
        authority.read_bytes()
        self.pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS, cert_reqs="CERT_REQUIRED", ca_certs=str(authority)
        )

    def headers(self, plain: Mapping[str, str]) -> Mapping[str, str]:
        return {**plain, "User-Agent": "berth", "Authorization": f"Bearer {self._token.token()}"}

    def renew(self) -> None:
        self._token.renew()


def _by_kubeconfig(path: str, context: str | None, monotonic: Callable[[], float] = time.monotonic) -> Client:
    import yaml
    from kubernetes import client, config

    settings, several = client.Configuration(), os.pathsep in path
    if context is not None:
        _require_context(context, path)
    elif several:
        # kubectl takes the first file's, the kubernetes client the last one's.
        context = current_context(path) or None
    # To the kubernetes client an empty file is an error; kubectl passes over it.
    files = os.pathsep.join(file for file, _ in _readable(path)) if several else path
    try:
        config.load_kube_config(files or path, context, settings)  # type: ignore[no-untyped-call]
        token = TokenFile(file, monotonic) if (file := _token_file(path, context)) else None
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, *_NOT_ONE) as error:
        raise _without_a_cluster(error, path) from error
    settings.connection_pool_maxsize = _CONNECTIONS
    if token is not None:
        # Of the credentials that the client loads, its own hook renews only those with an expiry.
        settings.refresh_api_key_hook = partial(_put, token)  # type: ignore[assignment]
    if not settings.verify_ssl:
        # urllib3 would say so with each connection.
        warnings.filterwarnings("once", category=urllib3.exceptions.InsecureRequestWarning)
    return _Kubeconfig(client.ApiClient(settings), token)


def _put(token: TokenFile, settings: Any) -> None:
    """Let a configuration of the kubernetes client have the token as its file has it."""
    settings.api_key["BearerToken"] = f"Bearer {token.token()}"


def _token_file(path: str, context: str | None) -> Path | None:
    """Return the tokenFile of the context's user; None where its credential is another."""
    chosen = _contexts(path).get(context or current_context(path))
    name = chosen.get("user") if isinstance(chosen, dict) else None
    for file, config in _readable(path):
        for entry in config.get("users") or ():
            if entry["name"] != name:
                continue
            user = entry.get("user") or {}
            # What the kubernetes client takes instead, where it is there.
            if "tokenFile" not in user or "token" in user or "auth-provider" in user:
                return None
            return Path(file).expanduser().absolute().parent / str(user["tokenFile"])
    return None


class _Kubeconfig:
    """The cluster that a kubeconfig names, by the kubernetes client, which knows all ways to log in."""

    def __init__(self, api: Any, token: TokenFile | None) -> None:
        self.api, self._token = api, token
        self.host: str = api.configuration.host
        self.pool = api.rest_client.pool_manager

    def headers(self, plain: Mapping[str, str]) -> Mapping[str, str]:
        headers: dict[str, str] = {**plain, **self.api.default_headers}
        self.api.update_params_for_auth(headers, None, ["BearerToken"], "", "GET", None)
        return headers

    def renew(self) -> None:
        if self._token is not None:
            self._token.renew()


def _require_context(name: str, path: str) -> None:
    if name not in (known := _contexts(path)):
        raise SettingsError(f"there is no context {name} in {path}; {alternatives(name, known)}")


def _contexts(path: str) -> dict[str, Any]:
    """Return the contexts of these kubeconfigs by name, each as the first that has it says."""
    contexts: dict[str, Any] = {}
    for _, config in _readable(path):
        listed = config.get("contexts")
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict) and "name" in one:
                contexts.setdefault(str(one["name"]), one.get("context"))
    return contexts


def _readable(path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return those of these kubeconfigs that are there and hold something, with what they hold. What can't be
    read holds nothing here: the kubernetes client says what is wrong with it."""
    import yaml

    configs: list[tuple[str, Mapping[str, Any]]] = []
    for file in filter(None, path.split(os.pathsep)):
        try:
            content = yaml.safe_load(Path(file).expanduser().read_bytes())
        except FileNotFoundError:
            continue
        except (yaml.YAMLError, OSError, ValueError, *_NOT_ONE):
            content = "can't be read"
        if content is not None:
            configs.append((file, content if isinstance(content, dict) else {}))
    return configs


def _without_a_cluster(error: Exception, path: str) -> SettingsError:
    why = " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")
    if isinstance(error, _NOT_ONE):
        why = "it is not one"
    if path and os.pathsep not in path and not Path(path).exists():
        why = "there is no such file"
    if path and os.environ.get("KUBECONFIG"):
        return SettingsError(f"no cluster to talk to ({path}: {why}); KUBECONFIG should name a kubeconfig")
    where = f"{path}: " if path else ""
    return NoClusterError(f"no cluster to talk to ({where}{why}): set KUBECONFIG to a kubeconfig")


def _explain(request: Request, status: int, content: bytes) -> NoReturn:
    try:
        why = msgspec.json.decode(content, type=_Status).message or "no reason given"
    except msgspec.DecodeError:
        why = "no reason given"
    where = f"{request.method} {request.path.partition('?')[0][:_LONGEST]}"
    if status == 429 or status >= 500:
        raise ClusterUnavailableError(f"the API server answered {status} to {where}: {why}")
    raise ClusterRefusedError(f"the API server refused {where} ({status}): {why}", status)


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(65536, decode_content=True):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(None, lines)
