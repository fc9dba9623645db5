"""The `berth` command: run the functions locally, apply Pools, reconcile now, look into the ledger,
copy it to another store, see a demo.
It adds nothing to what the functions do: each subcommand runs them or their verbs."""

from berth.cli.arguments import main

__all__ = ["main"]
