"""The rows of `berth claims`, and plain aligned tables for it, `berth status` and the dashboard.
Pure: it asks no store and no cluster, and is as far behind them as the View that it is given."""

import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from berth.ledger.holders import UnitRow, wholes
from berth.ledger.report import DomainRow, LimitRow, PoolRow, natural
from berth.ledger.view import View

_POOL_COLUMNS = ("POOL", "DOMAIN", "CAPACITY", "USED", "FREE", "BINDING", "WAITING")
_CLAIM_COLUMNS = ("NAMESPACE", "POD", "NODE", "POOL", "DOMAIN", "COUNT", "STATE", "AGE")
_UNIT_COLUMNS = ("POOL", "DOMAIN", "UNIT", "STATE", "HOLDER", "CLAIM", "NODE")
_ALL, _NONE, _UNKNOWN = "<all>", "-", "?"
_GAP = "   "
_FEW = 3  # names in a note
_LEAST_WRAPPED = 24  # columns: narrower, and each word would stand in a line of its own


class ClaimRow(msgspec.Struct, frozen=True):
    """What one pod holds in one domain; a pod that holds units of two pools has two rows.

    `units` are the names that are known, `claim` is the PoolClaim that gave them.
    """

    namespace: str
    pod: str
    uid: str
    node: str
    pool: str
    domain: str
    count: int
    units: tuple[str, ...]
    claim: str
    state: str
    since: datetime


def claim_rows(view: View, pool: str | None = None, namespace: str | None = None) -> list[ClaimRow]:
    """Return who holds what, sorted by namespace and pod."""
    rows = [
        ClaimRow(
            namespace=claim.namespace,
            pod=claim.name,
            uid=claim.uid,
            node=claim.node,
            pool=holding.pool,
            domain=holding.domain,
            count=holding.count,
            units=holding.units,
            claim=holding.claim,
            state=claim.state,
            since=datetime.fromtimestamp(int(claim.since), UTC),
        )
        for claim in view.claims()
        if namespace in (None, claim.namespace)
        for holding in wholes(claim)
        if pool in (None, holding.pool)
    ]
    return sorted(rows, key=lambda row: (row.namespace, natural(row.pod), row.uid, row.pool, row.domain))


def pool_lines(pools: Iterable[PoolRow]) -> list[str]:
    """Return a table of pools: the pool's total, then its domains."""
    return aligned_pools(
        cells
        for pool in pools
        for cells in (total_cells(pool), *(domain_cells(pool.name, domain) for domain in pool.domains))
    )


def total_cells(pool: PoolRow) -> tuple[str, ...]:
    waiting = _UNKNOWN if pool.waiting is None else str(pool.waiting)
    counts = (pool.capacity, pool.used, pool.free, pool.binding)
    return (pool.name, _ALL, *map(str, counts), waiting, "; ".join(_pool_notes(pool)))


def domain_cells(pool: str, domain: DomainRow) -> tuple[str, ...]:
    capacity = _NONE if domain.capacity is None else str(domain.capacity)
    counts = (domain.used, domain.free, domain.binding)
    note = "; ".join(_notes(domain, domain.over, None))
    return (pool, domain.name, capacity, *map(str, counts), _NONE, note)


def _pool_notes(pool: PoolRow) -> list[str]:
    """Return what a pool's numbers don't say, above all why free units are not given."""
    held = "held back since the ledger was lost: berth reconcile" if pool.held_back else ""
    places = "" if pool.suspended else _few(pool.suspended_domains)
    preempts = pool.preemption == "Native" and pool.free and pool.waiting
    return [
        *filter(None, [held, places and f"suspended: {places}"]),
        *_notes(pool, pool.over_committed, pool.priority_at_least),
        *([f"{pool.external} used outside the cluster"] if pool.external else []),
        *(["what is free may be for a pod that preempts"] if preempts else []),
        *([f"limits: {_limits(pool.limits)}"] if pool.limits else []),
    ]


def _notes(row: PoolRow | DomainRow, over: int, priority: int | None) -> list[str]:
    """Return what is to be said of a pool as of a domain; only a pool's row knows the priority."""
    least = "a priority" if priority is None else f"priority >= {priority}"
    lost = "a lost pod" if row.lost == 1 else "lost pods"
    notes = {
        "suspended": row.suspended,
        f"over-committed by {over}": over,
        f"{row.lost} held for {lost}: berth release": row.lost,
        f"{row.priority_only} reserved for {least}": row.priority_only,
        f"{row.resting} resting": row.resting,
        f"{row.kept} kept for their last pods": row.kept,
    }
    return [text for text, there in notes.items() if there]


def _limits(limits: Sequence[LimitRow]) -> str:
    """Return the limits, those that leave nothing first; the last is that of all other namespaces."""
    named = sorted(
        (row for row in limits if row.used is not None), key=lambda row: (row.used or 0) < row.limit
    )
    others = [f"* {row.limit}" for row in limits if row.used is None]
    return _few([f"{row.namespace} {row.used}/{row.limit}" for row in named], others)


def _few(texts: Sequence[str], always: Sequence[str] = ()) -> str:
    more = [f"{len(texts) - _FEW} more"] if len(texts) > _FEW else []
    return ", ".join([*texts[:_FEW], *more, *always])


def aligned_pools(lines: Iterable[tuple[str, ...]]) -> list[str]:
    """Return cells of pools and domains as lines below a header, which names NOTE only if there is one."""
    cells = list(lines)
    if any(line[-1] for line in cells):
        return aligned((*_POOL_COLUMNS, "NOTE"), cells)
    return aligned(_POOL_COLUMNS, [line[:-1] for line in cells])


def claim_lines(claims: Iterable[ClaimRow], now: float) -> list[str]:
    """Return a table of claims."""
    cells = [
        (
            *(row.namespace or _NONE, row.pod, row.node or _NONE, row.pool, row.domain),
            *(str(row.count), row.state, age(now - row.since.timestamp())),
        )
        for row in claims
    ]
    return aligned(_CLAIM_COLUMNS, cells)


def unit_lines(units: Iterable[UnitRow]) -> list[str]:
    """Return a table of units; a range of free ones is one line."""
    cells = [
        (
            *(row.pool, row.domain, row.unit or f"<{row.count} without a name>", row.state),
            *(cell or _NONE for cell in (row.holder, row.claim, row.node)),
        )
        for row in units
    ]
    return aligned(_UNIT_COLUMNS, cells)


def aligned(header: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose columns are aligned, without boxes and colour, so that programs can read them."""
    cells = [[printable(cell) for cell in line] for line in (header, *lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def wrapped(header: Sequence[str], lines: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return lines as `aligned` does, with the last column wrapped below itself where they are wider than
    `width` (None: never). Where it has too little room there it stands in lines of its own. No word is cut.
    """
    cells = [[printable(cell) for cell in line] for line in (header, *lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    at = sum(widths) + len(_GAP) * len(widths)
    below = width is not None and width - at < _LEAST_WRAPPED
    room = width if width is None else width - (len(_GAP) if below else at)
    wrapped = []
    for line in cells:
        first = "".join(cell.ljust(size) + _GAP for cell, size in zip(line, widths, strict=False))
        parts = folded(line[-1], room)
        if below:
            wrapped += [first.rstrip(), *(_GAP + part for part in parts)]
        else:
            wrapped += [(first + parts[0]).rstrip(), *(" " * at + part for part in parts[1:])]
    return wrapped


def folded(text: str, room: int | None) -> list[str]:
    """Return the text in lines of at most so many characters, but for words that are longer."""
    if room is None or len(text) <= room:
        return [text]
    return textwrap.wrap(text, max(1, room), break_long_words=False, break_on_hyphens=False) or [text]


def reason_lines(reasons: Iterable[tuple[int, float, str]], width: int | None) -> list[str]:
    """Return a table of texts for which so many pods wait for so many seconds."""
    cells = [(f"{pods:<4}", f"{age(seconds):<5}", text) for pods, seconds, text in reasons]
    return wrapped(("PODS", "AGE  ", "WHY THEY WAIT"), cells, width)


def age(seconds: float) -> str:
    """Return an age as kubectl writes it: 90s, 5m30s, 2h, 3d; 0s where a clock is behind."""
    rest = max(0, int(seconds))
    if rest < 120:
        return f"{rest}s"
    minutes, hours, days = rest // 60, rest // 3600, rest // 86400
    if minutes < 10:
        return _two(minutes, "m", rest % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    return _two(days, "d", hours % 24, "h") if days < 8 else f"{days}d"


def _two(large: int, unit: str, small: int, smaller: str) -> str:
    return f"{large}{unit}{small}{smaller}" if small else f"{large}{unit}"


def printable(text: str) -> str:
    """Return the text with blanks in place of what would move a terminal's cursor."""
    return "".join(character if character.isprintable() else " " for character in text)
