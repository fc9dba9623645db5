"""`berth scheduler-config`: what a kube-scheduler must be told to call Berth's functions where they run.
It asks neither them nor the cluster: that the URLs lead there is seen when the scheduler runs."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from berth.errors import SettingsError

if TYPE_CHECKING:
    from berth.cli.scheduler_config import Calls, Lease

_EACH, _ALL = ("filter", "prioritize", "preempt", "bind"), "extender"
_LEAST, _MOST = 5, 300  # seconds; bind takes up to 4.8


def add_options(parser: argparse.ArgumentParser) -> None:
    for name in (*_EACH, _ALL):
        parser.add_argument(f"--{name}", metavar="URL", help=f"where functions/{name} answers")
    parser.add_argument(
        "--scheduler",
        metavar="NAME",
        action="append",
        help="a schedulerName of Berth's pods, once for each (BERTH_SCHEDULER_NAMES; else berth)",
    )
    parser.add_argument(
        "--group",
        metavar="DOMAIN",
        action="append",
        help="the domain of a Pool's resource that is not berth.dev, once for each",
    )
    parser.add_argument(
        "--resource",
        metavar="NAME",
        action="append",
        help="with --extender: each Pool's resource; pods that ask for none of them cost no call",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="the functions' token (BERTH_AUTH_TOKEN, BERTH_AUTH_TOKEN_FILE)"
    )
    parser.add_argument(
        "--ca",
        metavar="PATH",
        help="where the scheduler finds the certificates that https URLs are checked by",
    )
    parser.add_argument(
        "--timeout",
        type=int,
        default=_LEAST,
        metavar="SECONDS",
        help=f"how long the scheduler waits for an answer, {_LEAST} to {_MOST}; default %(default)s",
    )
    parser.add_argument(
        "--weight", type=int, default=1, metavar="N", help="weight of Berth's scores; 1 is a plugin's"
    )
    parser.add_argument(
        "--scheduler-kubeconfig", metavar="PATH", help="the scheduler's kubeconfig; else its pod's account"
    )
    parser.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        help="for more than one replica: by which they elect who schedules",
    )
    parser.add_argument(
        "--policy", action="store_true", help="with --extender: a Policy, for kube-scheduler before 1.23"
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="a configuration of your own: only the token is put into its URLs http://berth:TOKEN@HOST",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write it there (mode 0600); else it is printed"
    )


def run(options: argparse.Namespace) -> int:
    from berth.cli import scheduler_config

    text = _text(options)
    if options.output:
        scheduler_config.write(Path(options.output), text, "--output")
        return 0
    if _token() is not None and sys.stdout.isatty():
        raise SettingsError(
            "it holds the token, which should not stand on a terminal: name a file by --output"
        )
    print(text, end="")
    return 0


def _text(options: argparse.Namespace) -> str:
    import msgspec

    from berth import settings
    from berth.cli import scheduler_config
    from berth.policy.pools import GROUP

    _refuse_empty(options, ("ca", "scheduler_kubeconfig", "output"))
    if options.source:
        return _filled(options)
    calls = _calls(options)
    managed = _managed(options)
    if options.policy:
        if managed is None:
            raise SettingsError(
                "a Policy knows no ignored resource groups: name functions/extender by --extender, "
                "and the Pools' resources by --resource"
            )
        _refuse(options, ("group", "scheduler", "lease", "scheduler_kubeconfig"), "a Policy holds no")
        document = scheduler_config.policy(calls, managed)
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    document = scheduler_config.configuration(
        calls,
        kubeconfig=options.scheduler_kubeconfig,
        schedulers=options.scheduler or settings.from_environment().scheduler_names,
        groups=[GROUP, *(options.group or ())],
        managed=managed,
        lease=_lease(options.lease),
    )
    return scheduler_config.as_yaml(document)


def _filled(options: argparse.Namespace) -> str:
    from berth.cli import scheduler_config

    others = (*_EACH, _ALL, "scheduler", "group", "resource", "ca", "lease", "scheduler_kubeconfig", "policy")
    _refuse(options, others, "--from takes the file as it is, without")
    token = _token()
    if token is None:
        raise SettingsError("--from puts the token into the file's URLs: name it by --token-file")
    try:
        text = Path(options.source).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError(f"can't read {options.source} (--from): {why}") from error
    return scheduler_config.as_yaml(scheduler_config.filled(text, token, options.source))


def _token() -> str | None:
    from berth import settings

    return settings.from_environment().admission.token


def _calls(options: argparse.Namespace) -> "Calls":
    from berth.cli.scheduler_config import Calls

    if not _LEAST <= options.timeout <= _MOST:
        raise SettingsError(
            f"--timeout {options.timeout} should be {_LEAST} to {_MOST} seconds: bind takes up to 4.8"
        )
    urls = {name: url for name in (*_EACH, _ALL) if (url := getattr(options, name))}
    return Calls(urls, _token(), options.ca, options.weight, options.timeout)


def _managed(options: argparse.Namespace) -> list[str] | None:
    """The resources that functions/extender is called for; None with one URL a function."""
    each = [name for name in _EACH if getattr(options, name)]
    if options.extender and each:
        raise SettingsError(
            f"--extender has all verbs, and --{each[0]} would be called beside it: kube-scheduler refuses "
            "two entries that bind, or that manage one resource"
        )
    if options.extender:
        _refuse(options, ("group",), "with --extender, which lists resources, there is no")
        return options.resource or []
    if options.resource:
        raise SettingsError(
            "--resource is for --extender: kube-scheduler refuses one that two entries manage, so one URL a "
            "function goes without, and wants a scheduler of its own"
        )
    missing = [f"--{name}" for name in _EACH if name not in each]
    if missing:
        raise SettingsError(
            f"{' and '.join(missing)} should name the functions' URLs, or --extender the one of all"
        )
    return None


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(options, name):
            raise SettingsError(f"{why} --{name.replace('_', '-')}: leave it out")


def _refuse_empty(options: argparse.Namespace, names: tuple[str, ...]) -> None:
    """As a script's variable that is not set: what was meant must not be left out in silence."""
    for name in names:
        if getattr(options, name) == "":
            raise SettingsError(f"--{name.replace('_', '-')} is empty: name a path, or leave it out")


def _lease(text: str | None) -> "Lease | None":
    from berth.cli.scheduler_config import Lease

    if text is None:
        return None
    namespace, separator, name = text.partition("/")
    if not (namespace and separator and name) or "/" in name:
        raise SettingsError(f"--lease {text!r} should be NAMESPACE/NAME")
    return Lease(namespace, name)
