"""The configuration of an HAProxy beside kube-scheduler, which adds the token to calls, and turns failures
into answers that a pod's event can show (docs/decisions/0031). It needs HAProxy 2.6; nothing here runs it."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from berth.errors import SettingsError
from berth.scheduler_config.kube_scheduler import ip_version

PORT = 8089
TOKEN = "/var/run/secrets/berth/token"
_LUA = "proxy.lua"
_PLAIN = re.compile(r"[A-Za-z0-9._~/-]*")
_SPARE = 0.1  # seconds by which the proxy gives up before kube-scheduler does
VERBS = ("filter", "prioritize", "preempt", "bind")
_WITH_ERROR = ("filter", "bind")  # the others' answers have no place for an error

_GLOBAL = f"""\
# HAProxy beside kube-scheduler, in its pod; `berth scheduler-config` wrote it (docs/install.md#the-proxy).
# kube-scheduler calls it without a credential, and it adds the token. Whatever is not a good answer becomes
# one that a pod's event can show: kube-scheduler throws away the body of any other than 200.
global
    default-path config
    log stderr format raw daemon
    nbthread 1
    maxconn 1000
    # Calls with some 2,000 names can be sent a second time. Twice as much costs each call twice the CPU.
    tune.bufsize 65536
    # So much of it stays free for the token. A call that fills the buffer would go without it otherwise.
    tune.maxrewrite 12288
    lua-load {_LUA}

defaults
    mode http
    log global
    # kube-scheduler ends a connection that has rested for 90 s: it must be the first to do so.
    timeout http-keep-alive 10m
    timeout client 10m
    timeout http-request 10s
    timeout connect 500ms
    timeout server SECONDSms
    # A call that got no answer may be sent again: each verb, bind too, answers the same call alike twice.
    # For that it has to be there as a whole before it is sent.
    retries 1
    retry-on conn-failure empty-response
    option http-buffer-request
"""
_ITS_CALLS = """\
    # The number before the size is the function's own status; kube-scheduler gets 200 whatever it is.
    log-format "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %[var(txn.status)] %B %tsc %rc %{+Q}r"
    # A browser beside it says so of each call that a page makes.
    http-request deny status 403 if { req.fhdr(origin) -m found }
"""
_HEALTH = """\
    # Each pod of the cluster may come here: what it does must leave the scheduler's calls alone.
    maxconn 100
    timeout client 1s
    timeout http-request 1s
    timeout http-keep-alive 1s
    no log
    http-request return status 200 content-type text/plain string "ok" if { path /healthz }
    http-request deny status 404
"""
_RESOLVERS = """
resolvers cluster
    parse-resolv-conf
    accepted_payload_size 8192
    timeout resolve 5s
    # Names are looked up while it runs, not before: its start must not wait for DNS. A known address stays in
    # use while nobody answers for the name.
    hold timeout 1h
    hold refused 1h
    hold other 1h
"""


class Proxy(NamedTuple):
    """The proxy's port on 127.0.0.1, and the path of its token; all paths are those of its own pod or host.

    `health` is a port on all addresses that answers a probe, and nothing else; None: there is none.
    `tls` is a folder with proxy.pem (its certificate and key) and scheduler-ca.crt: then a caller needs a
    certificate of that authority. None: whoever reaches that 127.0.0.1 may call.
    """

    port: int = PORT
    token: str = TOKEN
    health: int | None = None
    tls: str | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"


def haproxy(proxy: Proxy, urls: Mapping[str, str], ca: str | None, seconds: int) -> str:
    """Return the configuration for functions at these URLs, which are checked already.

    `ca` is the path of the authority's certificates for https; without it the system's are taken.
    `seconds` is kube-scheduler's time-out. Raises SettingsError for what HAProxy's language can't hold.
    """
    for path in (proxy.token, ca or "/", proxy.tls or "/"):
        if not path.startswith("/") or set(path) & set(" '\"\\#,$") or not path.isprintable():
            raise SettingsError(f"{path!r} should be an absolute path without blanks and quotation marks")
    for name, url in urls.items():
        if not _PLAIN.fullmatch(urlsplit(url).path):
            raise SettingsError(
                f"{name}'s URL {url} has characters in its path that a proxy's rules can't hold"
            )
        if url.startswith("https:") and ip_version(_host(url)):
            raise SettingsError(
                f"{name}'s URL {url} has an address, and HAProxy finds names alone in a certificate: "
                "name the host"
            )
    patience = seconds - _SPARE
    parts = [_GLOBAL.replace("SECONDS", f"{patience * 1000:.0f}")]
    if any(_needs_dns(_host(url)) for url in urls.values()):
        parts.append(_RESOLVERS)
    parts.append(_frontend(proxy))
    calls = {verb: urls.get(verb) or urls["extender"] for verb in VERBS}
    return "".join([*parts, *(_backend(verb, url, proxy, ca, patience) for verb, url in calls.items())])


def write(path: Path, text: str) -> None:
    """Write the configuration, and beside it the script that it loads. Raises SettingsError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.with_name(_LUA).write_text(script(), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"can't write {error.filename} (--proxy): {error.strerror}") from error


def script() -> str:
    """Return the Lua script that the configuration loads."""
    return Path(__file__).with_name(_LUA).read_text(encoding="utf-8")


def _frontend(proxy: Proxy) -> str:
    verbs = [f"    use_backend {verb} if {{ path /{verb} }}\n" for verb in VERBS]
    bind = f"    bind 127.0.0.1:{proxy.port}"
    if tls := proxy.tls:
        bind += f" ssl crt {tls}/proxy.pem ca-file {tls}/scheduler-ca.crt verify required"
    text = "".join(["\nfrontend scheduler\n", f"{bind}\n", _ITS_CALLS, *verbs])
    return text if proxy.health is None else f"{text}\nfrontend health\n    bind :{proxy.health}\n{_HEALTH}"


def _backend(verb: str, url: str, proxy: Proxy, ca: str | None, patience: float) -> str:
    host, path = urlsplit(url).netloc, urlsplit(url).path.rstrip("/")
    refusals = _REFUSALS if verb in _WITH_ERROR else ()
    lines = [
        "",
        f"backend {verb}",
        f"    http-request lua.add_token {proxy.token}",
        f"    http-request return {_answer(verb, _NO_TOKEN)} unless {{ req.fhdr(authorization) -m found }}",
        f"    http-request set-header Host {host}",
        *([f"    http-request set-path {path}%[path]"] if path else []),
        f"    server {verb} {_server(url, ca)}",
        "    http-response set-var(txn.status) status",
        "    http-response set-log-level silent if { status 200 }",
        *(
            f"    http-response return {_answer(verb, why)} if {{ status {status} }}"
            for status, why in refusals
        ),
        f"    http-response return {_answer(verb, _OTHER)} unless {{ status 200 }}",
        *(
            f"    http-error status {status} {_answer(verb, why, status=None)}"
            for status, why in _failures(url, patience)
        ),
        "    http-after-response set-status 200",
    ]
    return "\n".join(lines) + "\n"


_NO_TOKEN = "can't be called, for the proxy beside kube-scheduler has no token"
_REFUSALS = (
    (401, "does not take the token of the proxy beside kube-scheduler (401)"),
    (404, "is not there (404)"),
    (503, "takes no calls at the moment (503): it is busy, or being started or replaced"),
)
_OTHER = "answered %[var(txn.status)]; its log says why"


def _failures(url: str, patience: float) -> Iterator[tuple[int, str]]:
    """Yield what HAProxy itself reports: its status, and what the event is to say."""
    yield 500, "can't be called: the proxy beside kube-scheduler failed, see its log"
    yield 502, "broke off its answer"
    yield 503, f"can't be reached at {url}"
    yield 504, f"did not answer within {patience:g} s"


def _answer(verb: str, why: str, status: int | None = 200) -> str:
    """Return the end of a rule that answers with these words, in the form that kube-scheduler decodes."""
    if verb == "prioritize":
        text = "[]"  # no scores: pods are placed without
    elif verb == "preempt":
        text = '{"NodeNameToMetaVictims":{}}'  # nobody is evicted
    else:
        text = json.dumps({"Error": f"berth's function {verb} {why}; the pod will be retried"})
    quoted = text.replace("'", "\\u0027")
    shown = "" if status is None else f"status {status} "
    return f"{shown}content-type application/json lf-string '{quoted}'"


def _server(url: str, ca: str | None) -> str:
    parts, host = urlsplit(url), _host(url)
    secure = parts.scheme == "https"
    name = f"[{host}]" if ":" in host else host
    words = [f"{name}:{parts.port or (443 if secure else 80)}"]
    if _needs_dns(host):
        words += ["resolvers cluster", "init-addr none"]
    if secure:
        words += [f"ssl verify required verifyhost {host} sni str({host})", f"ca-file {ca or '@system-ca'}"]
    return " ".join(words)


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _needs_dns(host: str) -> bool:
    """Whether DNS is asked for the host: a cluster's need not know localhost."""
    return host != "localhost" and ip_version(host) is None
