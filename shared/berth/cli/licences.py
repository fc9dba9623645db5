"""`berth licences`: what a licence server's text says of a Pool's licences, beside the claims of our pods.
With `--write` what others use becomes the Pool's `external`, as `berth external` would write it."""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import msgspec

from berth import settings
from berth.api.pool import EVERYWHERE, ExternalFrom, Pool
from berth.cli.output import note, show
from berth.cli.shared_options import add_output, add_source, add_store, existing_ledger
from berth.controller.external_use import only_cluster, require_cluster_scope
from berth.controller.licence_reading import claimed_of, missing_of
from berth.controller.licence_text import fetched
from berth.controller.pool_source import amend
from berth.errors import BadInputError, SettingsError, few
from berth.kube.cluster import connect
from berth.ledger.capacity import amount
from berth.ledger.ledger import Ledger
from berth.ledger.report import external_units, reading_told
from berth.ledger.view import View
from berth.licences.checkouts import LARGEST, Feature, Use, use_of
from berth.licences.formats import FORMATS, read

_MOST_NAMED = 5
_SECONDS = 10.0  # for a URL


class Licences(msgspec.Struct, frozen=True, rename="camel"):
    """A feature's licences: what there is, and who uses how many.

    `pods` is what our pods hold by their claims, `unclaimed` what they have checked out beyond that,
    `others` what everybody else uses or may alone use, `missing` what the Pool counts and the server does not
    have. `external`, the sum of the last three, is what no pod may get. `before` is what is counted so far,
    by the Pool, or by the last reading where the Pool has externalFrom, which `last_reading` tells of.
    """

    pool: str
    feature: str
    capacity: int
    issued: int
    in_use: int
    queued: int
    pods: int
    unclaimed: int
    others: int
    missing: int
    external: int
    before: int
    idle: tuple[str, ...]
    written_to: str
    last_reading: str = ""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL", help="one of scope Cluster")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        default="-",
        help="the server's text: a file, a URL, or - for standard input (default: -)",
    )
    parser.add_argument(
        "--format",
        choices=[*FORMATS],
        help="lmstat -a of FlexLM, rlmstat -a of RLM, flexlm_exporter's metrics, or JSON (default: the Pool's"
        " externalFrom, else lmstat)",
    )
    parser.add_argument(
        "--feature", metavar="NAME", help="the feature's name (default: the Pool's externalFrom, else POOL)"
    )
    parser.add_argument(
        "--match",
        choices=["host", "user", "display"],
        help="where a checkout has the name of our pod (default: the Pool's externalFrom, else host)",
    )
    parser.add_argument("--write", action="store_true", help="write what others use into spec.external")
    add_source(parser, " by --write")
    add_store(parser)
    add_output(parser)
    parser.set_defaults(run=licences)


def licences(options: argparse.Namespace) -> int:
    """Show who uses how many licences. Raises BadInputError, and writes nothing, where the text has none."""
    config = settings.from_environment()
    text = _text(options.source)
    with existing_ledger(config.store, reads_only=True) as store:
        view = Ledger(store).view()
    pool = _pool(options.pool, view)
    source = pool.external_from or ExternalFrom(feature=pool.name)
    feature = read(text, options.format or source.format, options.feature or source.feature)
    match = options.match or source.match
    told = _licences(pool, feature, use_of(feature, claimed_of(view, pool.name), match), view)
    if options.write:
        place = str(config.pools or "the cluster")
        amend(config.pools, connect, pool.name, partial(only_cluster, told.external))
        told = msgspec.structs.replace(told, written_to=place)
    if options.output == "table":
        print("\n".join(_lines(told)))
    else:
        show(told, options.output)
    return 0


def _text(source: str) -> bytes:
    """Return the text, as far as a licence server's can be long. Raises SettingsError."""
    if source == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    if source.startswith(("http://", "https://")):
        return fetched(source, _SECONDS, LARGEST)
    try:
        with Path(source).open("rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise SettingsError(f"can't read {source}: {error.strerror}") from error


def _pool(name: str, view: View) -> Pool:
    """Return the Pool as the ledger has it. Raises BadInputError."""
    if name not in view.pools:
        raise BadInputError(f"there is no Pool {name}; there are: {few(sorted(view.pools), _MOST_NAMED)}")
    require_cluster_scope(view.pools[name])
    return view.pools[name]


def _licences(pool: Pool, feature: Feature, use: Use, view: View) -> Licences:
    capacity, missing = amount(view.capacity(pool.name, EVERYWHERE)), missing_of(pool, feature)
    read = pool.external_from is not None
    return Licences(
        pool=pool.name,
        feature=feature.name,
        capacity=capacity,
        issued=feature.issued,
        in_use=feature.in_use,
        queued=feature.queued,
        pods=use.pods,
        unclaimed=use.unclaimed,
        others=use.others,
        missing=missing,
        external=use.outside + missing,
        before=external_units(pool, view) if read else pool.spec.external,
        idle=use.idle,
        written_to="",
        last_reading=reading_told(view, pool.name, time.time()),
    )


def _lines(told: Licences) -> list[str]:
    says = "the ledger counts" if told.last_reading else "the Pool says"
    rows = [
        ("issued", told.issued, f"the Pool has {told.capacity}"),
        ("in use", told.in_use, f"{told.queued} queued" if told.queued else ""),
        ("by pods", told.pods, "by their claims"),
        ("unclaimed", told.unclaimed, "checked out by pods beyond their claims"),
        ("by others", told.others, "with what is reserved for somebody"),
        ("missing", told.missing, "the Pool has more than the server"),
        ("external", told.external, f"what no pod may get; {says} {told.before}"),
    ]
    lines = [f"Pool {told.pool}, feature {told.feature}:"]
    lines += [f"  {name:10} {count:>6}  {words}".rstrip() for name, count, words in rows]
    if told.idle:
        lines.append(f"without a checkout: {few(told.idle, _MOST_NAMED)}")
    if told.written_to:
        lines.append(f"written to {told.written_to}")
    elif told.last_reading:
        lines.append(told.last_reading)
    elif told.external != told.before:
        note("nothing was written: say --write")
    return lines
