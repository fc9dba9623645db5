"""Inputs of checks made by hand: what is given is taken as read, and there is no cluster to ask."""

from typing import Any

import msgspec

from berth.api.pool import parse
from berth.checks.inputs import Inputs, Options, Scheduler
from berth.kube.configuration import SchedulerConfiguration


class NoCluster:
    host = "https://none"


def inputs_of(**read: Any) -> Inputs:
    """Inputs that have read this already; `pools` are documents."""
    made = Inputs(NoCluster(), Options({}), lambda: 1000.0, lambda: 0.0)  # type: ignore[arg-type]
    documents = read.pop("pools", [])
    usual = {"scheduler_names": ("berth",), "accounts": (), "nodes": [], "pods": [], "deployments": []}
    vars(made).update({**usual, "pool_documents": documents, "pools": parse(documents, "test"), **read})
    return made


def scheduler(document: Any, replicas: int | None = None) -> tuple[Scheduler, ...]:
    """One scheduler with this configuration."""
    return (Scheduler("a.yaml", msgspec.convert(document, SchedulerConfiguration), "", replicas),)
