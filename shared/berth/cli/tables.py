"""Plain aligned tables for `berth claims`, `berth status` and the dashboard.
Pure: it asks no store and no cluster."""

import textwrap
from collections.abc import Iterable, Sequence

from berth.ledger.holders import ClaimRow, UnitRow
from berth.ledger.report import DomainRow, PoolRow, domain_notes, pool_notes

_POOL_COLUMNS = ("POOL", "DOMAIN", "CAPACITY", "USED", "FREE", "BINDING", "WAITING")
_CLAIM_COLUMNS = ("NAMESPACE", "POD", "NODE", "POOL", "DOMAIN", "COUNT", "STATE", "AGE")
_UNIT_COLUMNS = ("POOL", "DOMAIN", "UNIT", "STATE", "HOLDER", "CLAIM", "NODE")
_ALL, _NONE, _UNKNOWN = "<all>", "-", "?"
_GAP = "   "
_LEAST_WRAPPED = 24  # columns: narrower, and each word would stand in a line of its own


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
    return (pool.name, _ALL, *map(str, counts), waiting, "; ".join(pool_notes(pool)))


def domain_cells(pool: str, domain: DomainRow) -> tuple[str, ...]:
    capacity = _NONE if domain.capacity is None else str(domain.capacity)
    counts = (domain.used, domain.free, domain.binding)
    note = "; ".join(domain_notes(domain))
    return (pool, domain.name, capacity, *map(str, counts), _NONE, note)


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
