"""What a pod of the worlds of the property test asks for, and says of itself."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.properties.pools import NAMESPACE


class Wish(NamedTuple):
    """What a pod asks for, by resource; with `claim` one unit of `ip` by the PoolClaim. `runs_for` is what it
    says of how long it runs, `owner` its controller's kind and name (empty: a bare pod), `gang` and `size`
    are those that it says. With a `finalizer` it stays when it was deleted, until that is taken off. One that
    is `hopeless` goes to no node: it lacks CPU, which berth does not count."""

    units: Mapping[str, int]
    claim: bool = False
    priority: int = 0
    space: str = NAMESPACE
    runs_for: str = ""
    owner: str = "StatefulSet:web"
    gang: str = ""
    size: int = 0
    finalizer: bool = False
    hopeless: bool = False

    @property
    def mates(self) -> tuple[str, int, str]:
        """Equal for pods that get their units together: they name one gang and agree on its size, and are of
        one owner."""
        return self.together, self.size, self.owner

    @property
    def together(self) -> str:
        """The gang that it names, as namespace/name; empty where it names none."""
        return f"{self.space}/{self.gang}" if self.gang else ""
