"""Conditions as Kubernetes has them in an object's status (metav1.Condition), so that `kubectl wait` works.
Pure: it knows neither what they mean nor who writes them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from berth.errors import RebuildingError
from berth.ledger.view import View

Json = Mapping[str, Any]
_LONGEST = 32768  # characters of a message: the API server refuses more (source: metav1.Condition)


class Condition(NamedTuple):
    """One condition as it is now; `reason` is a word in CamelCase, `message` is for a person.

    `generation` is the one of the object that it tells of; None: the one that the object has now.
    """

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    generation: int | None = None


def merged(
    conditions: Sequence[Condition], owned: Collection[str], document: Json, now: float
) -> list[dict[str, Any]]:
    """Return an object's conditions with those of now, as they go into its status.

    What stands in the document keeps its time while its status stays as it is, so that a status that is right
    is equal to the one that stands there. Conditions of types that are not `owned` are others': they stay.
    """
    standing = {one["type"]: one for one in (document.get("status") or {}).get("conditions") or ()}
    generation = document["metadata"].get("generation")
    at = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:%SZ}"
    ours = [_written(one, standing.get(one.type, {}), generation, at) for one in conditions]
    return ours + [one for kind, one in standing.items() if kind not in owned]


def why_closed(view: View) -> str | None:
    """Return why nothing is given out of this ledger now; None: it is open."""
    trouble = RebuildingError() if view.epoch is None else view.epoch.trouble()
    return None if trouble is None else str(trouble)


def _written(condition: Condition, before: Json, generation: int | None, at: str) -> dict[str, Any]:
    since = before.get("lastTransitionTime") if before.get("status") == condition.status else None
    observed = generation if condition.generation is None else condition.generation
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message[:_LONGEST],
        "lastTransitionTime": since or at,
        **({} if observed is None else {"observedGeneration": observed}),
    }
