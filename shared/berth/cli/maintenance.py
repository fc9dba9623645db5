"""The options of `berth suspend`, `berth external` and `berth release`: what a person does now and then.
What they do is in `pool_fields` and `release`, which are imported when they run."""

import argparse

from berth.api.units import MOST

COMMANDS = ("suspend", "external", "release")


def run(options: argparse.Namespace) -> int:
    if options.command == "release":
        from berth.cli import release as freeing

        return freeing.release(options)
    from berth.cli import pool_fields

    return pool_fields.suspend(options) if options.command == "suspend" else pool_fields.external(options)


def suspend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL")
    parser.add_argument(
        "domains", metavar="DOMAIN", nargs="*", default=[], help="only these (default: the whole pool)"
    )
    parser.add_argument("--resume", action="store_true", help="give units there again")
    # argparse takes no domain after --resume: it believes that there are none once it has the pool.
    parser.set_defaults(words_to="domains")
    _source(parser)


def external(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL", help="one of scope Cluster")
    parser.add_argument("units", metavar="N", type=_units, help="how many are in use there now")
    _source(parser)


def release(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uid", metavar="POD_UID", nargs="?", help="all units that this pod held")
    parser.add_argument("--node", metavar="NODE", help="the units of all pods of this node that are gone")
    parser.add_argument("--pool", metavar="POOL", help="the pool of --unit")
    parser.add_argument("--unit", metavar="NAME", help="this unit of --pool")
    parser.add_argument("--dry-run", action="store_true", help="say what would be freed, and free nothing")
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster to talk to (KUBECONFIG)")
    parser.add_argument("--store", metavar="URL", help="the ledger's store (BERTH_STORE)")


def _source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster to talk to (KUBECONFIG)")
    parser.add_argument(
        "--pools",
        metavar="FILE",
        help="the active source of Pools if it is a file (BERTH_POOLS); its comments get lost",
    )
    parser.add_argument(
        "--store", metavar="URL", help="the ledger's store (BERTH_STORE), to see who holds units"
    )


def _units(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number of units from 0 to {MOST}")
    return int(text)
