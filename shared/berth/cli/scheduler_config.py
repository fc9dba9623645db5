"""`berth scheduler-config`: write the configuration with which a kube-scheduler calls Berth's functions.
It asks neither them nor the cluster: whether the URLs lead there shows when the scheduler runs."""

import argparse
from pathlib import Path

import msgspec

from berth import settings
from berth.api.names import GROUP
from berth.cli.shared_options import any_number
from berth.errors import SettingsError
from berth.scheduler_config import haproxy, kube_scheduler
from berth.scheduler_config.haproxy import PORT, TOKEN, VERBS, Proxy
from berth.scheduler_config.kube_scheduler import Calls, Lease
from berth.settings import Access

_ALL = "extender"
_LEAST, _MOST = 5, 300  # seconds; bind takes up to 4.8
PROXY_TLS = (
    "let the proxy take only kube-scheduler's calls, by certificates in FOLDER: proxy.pem (with its key), "
    "proxy-ca.crt, scheduler.crt, scheduler.key, scheduler-ca.crt"
)
_INSTEAD = "let a proxy beside it add the token (--proxy FILE, see docs/install.md#the-proxy)"


def add_options(parser: argparse.ArgumentParser) -> None:
    for name in (*VERBS, _ALL):
        parser.add_argument(f"--{name}", metavar="URL", help=f"where functions/{name} answers")
    parser.add_argument(
        "--scheduler",
        metavar="NAME",
        action="append",
        help="a schedulerName of Berth's pods; may be repeated (BERTH_SCHEDULER_NAMES; else berth)",
    )
    parser.add_argument(
        "--group",
        metavar="DOMAIN",
        action="append",
        help="the domain of a Pool's resource that is not berth.dev; may be repeated",
    )
    parser.add_argument(
        "--resource",
        metavar="NAME",
        action="append",
        help="with --extender: a Pool's resource, repeated for each; there are no calls for other pods",
    )
    _add_proxy(parser)
    parser.add_argument(
        "--ca",
        metavar="PATH",
        help="the certificates that check https URLs, where the scheduler (or its proxy) runs",
    )
    parser.add_argument(
        "--timeout",
        type=any_number,
        default=_LEAST,
        metavar="SECONDS",
        help=f"how long the scheduler waits for an answer, {_LEAST} to {_MOST}; default %(default)s",
    )
    parser.add_argument(
        "--weight", type=any_number, default=1, metavar="N", help="weight of Berth's scores; 1 is a plugin's"
    )
    parser.add_argument(
        "--scheduler-kubeconfig", metavar="PATH", help="the scheduler's kubeconfig; else its pod's account"
    )
    parser.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        help="for more than one replica: the Lease by which they elect who schedules",
    )
    parser.add_argument(
        "--policy", action="store_true", help="with --extender: a Policy, for kube-scheduler before 1.23"
    )
    for name in ("--from", "--token-file"):
        parser.add_argument(name, dest="in_a_url", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", metavar="FILE", help="write it there; else it is printed")
    parser.set_defaults(run=run)


def _add_proxy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--proxy",
        metavar="FILE",
        help="write there the configuration of an HAProxy that adds the token to the scheduler's calls",
    )
    parser.add_argument(
        "--proxy-port",
        type=any_number,
        metavar="PORT",
        help=f"where the proxy listens on 127.0.0.1; default {PORT}",
    )
    parser.add_argument(
        "--proxy-token", metavar="PATH", help=f"where the proxy finds the token's file; default {TOKEN}"
    )
    parser.add_argument("--proxy-tls", metavar="FOLDER", help=PROXY_TLS)
    parser.add_argument(
        "--proxy-health",
        type=any_number,
        metavar="PORT",
        help="where the proxy answers probes; else it answers none",
    )


def run(options: argparse.Namespace) -> int:
    text, proxy = _text(options), _proxy(options)
    if proxy is not None:
        adds_token = haproxy.haproxy(proxy, _urls(options), options.ca, options.timeout)
        haproxy.write(Path(options.proxy), adds_token)
    if options.output:
        kube_scheduler.write(Path(options.output), text, "--output")
    else:
        print(text, end="")
    return 0


def _text(options: argparse.Namespace) -> str:
    for name in ("ca", "scheduler_kubeconfig", "output", "proxy", "proxy_token", "proxy_tls"):
        if getattr(options, name) == "":  # as where a script's variable is not set
            raise SettingsError(f"--{name.replace('_', '-')} is empty: name a path, or leave it out")
    if options.in_a_url is not None:
        raise SettingsError(
            "--from and --token-file put the token into the scheduler's URLs, and it prints those into pods' "
            f"events: {_INSTEAD}"
        )
    calls = _calls(options)
    managed = _managed(options)
    if options.policy:
        if managed is None:
            raise SettingsError(
                "a Policy knows no ignored resource groups: name functions/extender by --extender, "
                "and the Pools' resources by --resource"
            )
        _refuse(options, ("group", "scheduler", "lease", "scheduler_kubeconfig"), "a Policy holds no")
        document = kube_scheduler.policy(calls, managed)
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    document = kube_scheduler.configuration(
        calls,
        kubeconfig=options.scheduler_kubeconfig,
        schedulers=options.scheduler or settings.from_environment().scheduler_names,
        groups=[GROUP, *(options.group or ())],
        managed=managed,
        lease=_lease(options.lease),
    )
    return kube_scheduler.as_yaml(document)


def _proxy(options: argparse.Namespace) -> Proxy | None:
    if options.proxy is None:
        others = ("proxy_port", "proxy_token", "proxy_health", "proxy_tls")
        _refuse(options, others, "without --proxy there is no")
        return None
    for name in ("proxy_port", "proxy_health"):
        port = getattr(options, name)
        if port is not None and not 0 < port < 65536:
            raise SettingsError(f"--{name.replace('_', '-')} {port} should be a port, from 1 to 65535")
    return Proxy(
        options.proxy_port or PORT, options.proxy_token or TOKEN, options.proxy_health, options.proxy_tls
    )


def _urls(options: argparse.Namespace) -> dict[str, str]:
    return {name: url for name in (*VERBS, _ALL) if (url := getattr(options, name))}


def refuse_a_token(access: Access) -> None:
    """Raise SettingsError where functions require a token, which kube-scheduler can't send by itself."""
    if access.token is not None or access.accounts:
        raise SettingsError(f"the functions want a token, and kube-scheduler can't send one: {_INSTEAD}")


def _calls(options: argparse.Namespace) -> Calls:
    if not _LEAST <= options.timeout <= _MOST:
        raise SettingsError(
            f"--timeout {options.timeout} should be {_LEAST} to {_MOST} seconds: bind takes up to 4.8"
        )
    proxy = _proxy(options)
    if proxy is None:
        refuse_a_token(settings.from_environment().access)
    url, tls = (None, None) if proxy is None else (proxy.url, proxy.tls)
    return Calls(_urls(options), url, options.ca, options.weight, options.timeout, tls)


def _managed(options: argparse.Namespace) -> list[str] | None:
    """Return the resources that functions/extender is called for; None with one URL a function."""
    verbs = [name for name in VERBS if getattr(options, name)]
    if options.extender and verbs:
        raise SettingsError(
            f"--extender has all verbs, and --{verbs[0]} would be called beside it: kube-scheduler refuses "
            "two entries that bind, or that manage one resource"
        )
    if options.extender:
        _refuse(options, ("group",), "with --extender, which lists resources, there is no")
        return options.resource or []
    if options.resource:
        raise SettingsError(
            "--resource is for --extender: kube-scheduler refuses one that two entries manage. With one URL "
            "a function no entry names resources, and Berth's pods need a scheduler of their own"
        )
    missing = [f"--{name}" for name in VERBS if name not in verbs]
    if missing:
        raise SettingsError(
            f"{' and '.join(missing)} should name the functions' URLs, or --extender the one of all"
        )
    return None


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(options, name):
            raise SettingsError(f"{why} --{name.replace('_', '-')}: leave it out")


def _lease(text: str | None) -> Lease | None:
    if text is None:
        return None
    namespace, separator, name = text.partition("/")
    if not (namespace and separator and name) or "/" in name:
        raise SettingsError(f"--lease {text!r} should be NAMESPACE/NAME")
    return Lease(namespace, name)
