"""docs/reliability.md: what `make chaos` has seen, written by the run alone, and read again by a test."""

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos.faults import FAULTS, Outcome
from tests.chaos.runs import told
from tests.chaos.store_faults import STORES
from tests.chaos.world import Form

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BY_HAND = "## Through Knative\n"
"""Where the part of the page begins that no run writes."""
TEXT = """# What breaks, and what is left of it

Written by `make chaos`, down to "Through Knative"; do not edit it.
`make test-long` runs these faults on SQLite, `make test-nightly` on the others, in a shorter form.

Each fault strikes while pods are made, bound, deleted and replaced, on a real API server and kube-scheduler,
with Berth's functions as `berth up` runs them. For every cell of the table the run checks:

- the fault struck: who was to die is gone; while the API server is away, nothing answers; while a store is,
  a pod's event says that it waits for the ledger (but for the Sentinels, which nobody misses); a ledger that
  was emptied, or lost in a fail-over, was rebuilt; pods' deletions and the new node were among the events;
- pods were bound while it lasted, where what they need was there, and each pod that was ever seen bound holds
  its unit in the end or was deleted;
- at no moment did a node's pods hold more units than there are (the API server's own watch of pods tells;
  where it was interrupted, every revision that it missed was listed);
- after one reconcile, and no other, every unit is held by a pod: none lies idle beside a waiter;
- the ledger's claims are exactly the bound pods, and a second reconcile finds nothing to mend;
- beside them, in a pool where small pods come and go, a large ask and gangs wait in line: nothing is held for
  a pod that is gone, and once the fault is over each is bound, a gang whole;
- on SQLite, where kube-scheduler calls by way of its proxy, the token that the proxy adds is in no object of
  the API server, no log (kube-scheduler's at `--v=10`), no command line and no process's environment.

A cell says how many pods were bound from before the fault until after it, and how many of them while it
lasted; how many claims and capacities the one reconcile mended, those among them whose event was still on its
way; whether it had to rebuild the ledger; how long after the fault's end the last pod was bound.
kube-scheduler holds back a pod that failed for up to 10 s, and the run waits up to 4 s before its reconcile,
until no reservation is younger than bind's deadline.

{table}

- Killed: `kill -9` after each call that bind makes to the store or the API server: where the Binding is made,
  where it never arrives, where its answer is lost, and where the pod was written before it. The steps are no
  list in the test: bind is made to tell them. The other functions are killed, in turn, at the same steps;
  preempt in turn before it decides, and before it answers that pods are to be evicted. Urgent pods evict
  others all the while: each is bound, and has cost one pod, or at most one more for each time that an error
  of filter or bind made kube-scheduler forget its nomination (docs/kubernetes.md#victims).
- Store down, for {outage:g} s. SQLite: the file is locked by another process. Redis: the server is killed and
  started again, with an AOF. Sentinels: all of them are killed, the primary goes on. DynamoDB: every call is
  answered with InternalServerError.
- Store silent, for {outage:g} s: its process is stopped (SIGSTOP).
- Store emptied: the file deleted; FLUSHALL; the ConfigMaps deleted one by one; the table deleted, made anew.
- Fail-over: the primary is killed after it answered for writes that its replica does not have.
- API server down: killed, and started again after {outage:g} s; etcd goes on.
- Events of pods and nodes, while a node joins: lost, for {silence:g} s; doubled (two at once);
  kept back and then delivered, the last first. The last two for {outage:g} s.

{nodes} nodes of {units} units, {pods} pods at any time, {replicas} of each function. {date}, commit
{commit}, {machine}, seed {seed}, {minutes:.0f} minutes. DynamoDB is moto's server here.
"""


def page(
    outcomes: Mapping[tuple[str, str], Outcome | str], form: Form, seed: int, seconds: float, before: str = ""
) -> str:
    """The page anew; `before` is what it was, whose part by hand stays."""
    written = TEXT.format(
        table=table(outcomes),
        outage=form.outage,
        silence=form.silence,
        nodes=form.nodes,
        units=form.units,
        pods=form.pods,
        replicas="one process" if form.replicas == 1 else f"{form.replicas} processes",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=_commit(),
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}",
        seed=seed,
        minutes=seconds / 60,
    )
    _, heading, rest = before.partition(BY_HAND)
    return f"{written}\n{heading}{rest}" if heading else written


def table(outcomes: Mapping[tuple[str, str], Outcome | str]) -> str:
    rows = [["fault", *STORES], ["---"] * (len(STORES) + 1)]
    rows += [[fault, *(_cell(outcomes, fault, store) for store in STORES)] for fault in FAULTS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(outcomes: Mapping[tuple[str, str], Outcome | str], fault: str, store: str) -> str:
    if fault in STORES[store].why_not:
        return f"– ({STORES[store].why_not[fault]})"
    outcome = outcomes.get((fault, store), "not run")
    return outcome if isinstance(outcome, str) else f"passed: {told(outcome)}"


def cells(text: str) -> dict[tuple[str, str], str]:
    """What the table of a page's written part says, by (fault, store)."""
    lines = text.partition(BY_HAND)[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    stores = rows[0][1:]
    return {(row[0], store): cell for row in rows[2:] for store, cell in zip(stores, row[1:], strict=True)}


def _commit() -> str:
    """Of the checkout; with a + where files differ from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--", "shared", "functions", "tests") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
