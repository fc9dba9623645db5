"""The texts that licence servers' own programs print, read into features: FlexLM's `lmstat -a`, RLM's
`rlmstat -a`, metrics of flexlm_exporter, and JSON. What can't be read is an error, never no use."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated

import msgspec

from berth.api.units import MOST
from berth.errors import BadInputError, few
from berth.licences.checkouts import LARGEST, Checkout, Feature

_MOST_SHOWN = 8

_NUMBER = r"\d{1,9}"

# FlexNet Publisher, License Administration Guide: lmstat.
_SERVER = re.compile(r"^License server status:\s*(\S.*?)\s*$")
_USERS_OF = re.compile(r"^Users of (.+?):\s+\((.*)\)\s*$")
_TOTALS = re.compile(rf"Total of ({_NUMBER}) licenses? issued;\s+Total of ({_NUMBER}) licenses? in use")
_LINE = re.compile(r"^\s+(?P<who>\S.*?) \(v[^()]*\) \((?P<server>[^()]*)\)(?P<rest>.*)$")
_RESERVED = re.compile(rf"^\s+({_NUMBER}) RESERVATIONs? for ")
_COUNT = re.compile(rf", ({_NUMBER}) licenses?\b")
_QUEUED = re.compile(rf"queued for ({_NUMBER}) licenses?")

# RLM License Administration: rlmstat.
_POOLS_ON = re.compile(r"^\s*(\S+ license pool status on \S.*?)\s*$")
_PRODUCT = re.compile(rf"^\s*(\S+) v[^\s,:]+(?:, pool: {_NUMBER})?\s*$")
_POOL = re.compile(rf"^\s+count: ({_NUMBER}), # reservations: ({_NUMBER}), inuse: ({_NUMBER})")
_HELD = re.compile(
    rf"^\s*(\S+) v\S+: (?P<user>.+?)@(?P<host>\S+) (?P<count>{_NUMBER})/(?P<reserved>{_NUMBER}) at "
)

# flexlm_exporter's metrics, in Prometheus' text format.
_METRIC = re.compile(r"^flexlm_feature_(issued|used|used_users)\{(.*)\} ([0-9][0-9.e+]{0,15})(?: \d+)?\s*$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class _CheckoutRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: str
    user: str = ""
    display: str = ""
    count: _Count = 1


class _FeatureRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    issued: _Count
    checkouts: tuple[_CheckoutRow, ...] = ()
    reserved: _Count = 0


class _Features(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    features: tuple[_FeatureRow, ...]


def lmstat(text: str) -> Iterator[Feature]:
    """Yield the totals of each feature that a FlexLM server's text counts, and then each line of it."""
    name, servers = "", set[str]()
    for line in text.splitlines():
        if (server := _SERVER.match(line)) is not None:
            _once(server[1], servers)
        header = _USERS_OF.match(line)
        if header is not None:
            totals = _TOTALS.match(header[2])
            # Others are uncounted, or not served: what is asked for must not pass for unused.
            name = header[1] if totals is not None else ""
            if totals is not None:
                yield Feature(name, int(totals[1]), int(totals[2]))
        elif name and (said := _line_of(name, line)) is not None:
            yield said


def _line_of(name: str, line: str) -> Feature | None:
    """Return what a line below a feature's totals says of it; None: nothing."""
    reserved = _RESERVED.match(line)
    if reserved is not None:
        return Feature(name, reserved=int(reserved[1]))
    held = _LINE.match(line)
    if held is None:
        return None
    queued, count = _QUEUED.search(held["rest"]), _COUNT.search(held["rest"])
    if queued is not None:
        return Feature(name, queued=int(queued[1]))
    # User, host and display, of which the last may be missing. Of more words the first are the user's, whose
    # name has spaces, or the last are a vendor's own.
    words = [*held["who"].split(), "", ""]
    more = words[-4] if len(words) > 5 else ""
    checkout = Checkout(words[0], words[1], words[2], int(count[1]) if count else 1, more)
    return Feature(name, checkouts=(checkout,))


def rlmstat(text: str) -> Iterator[Feature]:
    """Yield a feature for each pool of licences, and one for each checkout, of an RLM server's text."""
    product, servers = "", set[str]()
    for line in text.splitlines():
        if (server := _POOLS_ON.match(line)) is not None:
            _once(server[1], servers)
        named, pool, held = _PRODUCT.match(line), _POOL.match(line), _HELD.match(line)
        if pool is not None and product:
            # Whether what is in use has the reservations in it, no manual says: the larger number is safe.
            yield Feature(product, int(pool[1]), int(pool[3]) + int(pool[2]), int(pool[2]))
        elif held is not None:
            count = int(held["count"]) + int(held["reserved"])
            yield Feature(held[1], checkouts=(Checkout(held["user"], held["host"], "", count),))
        if line.strip():
            product = "" if named is None else named[1]


def _once(server: str, known: set[str]) -> None:
    """Add a server, or a series of its metrics, to those that the text has. Raises BadInputError where it is
    there already: its licences would count twice, and those that are missing would not show."""
    if server in known:
        raise BadInputError(f"the text has the same server twice: {server[:200]}")
    known.add(server)


def prometheus(text: str) -> Iterator[Feature]:
    """Yield a feature for each metric of flexlm_exporter. It names users, and neither hosts nor displays."""
    series = set[str]()
    for line in text.splitlines():
        metric = _METRIC.match(line)
        if metric is None:
            continue
        _once(f"{metric[1]}{{{metric[2]}}}", series)
        labels, count = dict(_LABEL.findall(metric[2])), _whole(metric[3], line)
        name = labels.get("name", "")
        match metric[1]:
            case "issued":
                yield Feature(name, issued=count)
            case "used":
                yield Feature(name, in_use=count)
            case "used_users":
                yield Feature(name, checkouts=(Checkout(labels.get("user", ""), "", "", count),))


def _whole(text: str, line: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise BadInputError(f"no number of licences: {line[:200]}") from None


def as_json(text: str) -> Iterator[Feature]:
    """Yield the features of `{"features": [{"name": …, "issued": 10, "checkouts": [{"host": …}]}]}`."""
    try:
        rows = msgspec.json.decode(text, type=_Features).features
    except msgspec.DecodeError as error:
        raise BadInputError(f"not licences as JSON: {' '.join(str(error).split())}") from error
    for row in rows:
        checkouts = tuple(Checkout(each.user, each.host, each.display, each.count) for each in row.checkouts)
        used = sum(checkout.licences for checkout in checkouts) + row.reserved
        yield Feature(row.name, row.issued, used, row.reserved, checkouts=checkouts)


FORMATS: Mapping[str, Callable[[str], Iterator[Feature]]] = {
    "lmstat": lmstat,
    "rlmstat": rlmstat,
    "prometheus": prometheus,
    "json": as_json,
}


def read(body: bytes, form: str, name: str) -> Feature:
    """Return the feature of this name by a server's text in this form. Raises BadInputError where the text
    is too large, or has no such feature that is counted: whatever else it says, nobody knows its use then."""
    if len(body) > LARGEST:
        raise BadInputError(f"the text has over {LARGEST // 1024 // 1024} MiB, which no licence server says")
    features = _summed(FORMATS[form](body.decode(errors="replace")))
    if name not in features or not features[name].issued:
        there = few(sorted(known for known in features if features[known].issued), _MOST_SHOWN) or "none"
        raise BadInputError(
            f"the text counts no licences of the feature {name}; it counts: {there}"
            " (is the server, or the vendor's daemon, down?)"
        )
    return features[name]


def _summed(features: Iterable[Feature]) -> dict[str, Feature]:
    checkouts: dict[str, list[Checkout]] = {}
    sums: dict[str, Feature] = {}
    for feature in features:
        # Joined at the end: a tuple that grows by one is copied for each of thousands.
        checkouts.setdefault(feature.name, []).extend(feature.checkouts)
        sums[feature.name] = sums.get(feature.name, Feature(feature.name)).joined(
            feature._replace(checkouts=())
        )
    return {name: feature._replace(checkouts=tuple(checkouts[name])) for name, feature in sums.items()}
