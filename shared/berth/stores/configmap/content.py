"""The content of one ConfigMap of a ledger, and which ConfigMap a document is in.
Nothing here talks to the API server; content is never changed, only replaced."""

import hashlib
from collections.abc import Mapping

import msgspec

from berth.stores.base import Version
from berth.stores.compression import pack, unpack

Bodies = Mapping[str, bytes | None]
Expected = Mapping[str, Version | None]
Documents = Mapping[str, tuple[Version, bytes]]


class Intent(msgspec.Struct, frozen=True):
    """What a commit over several ConfigMaps will write here, once it is recorded in `primary` as
    committed."""

    tx: str
    primary: str
    writes: dict[str, bytes | None]


class Committed(msgspec.Struct, frozen=True):
    """In the primary: a commit that was decided `since`, and the others that may not have applied it yet."""

    since: float
    others: tuple[str, ...]


class Generation(msgspec.Struct, frozen=True):
    """In the head: which shards belong to this generation of the ledger. A ConfigMap that was deleted and
    made again has another UID than is noted here; no UIDs are noted while the generation is in the making.

    `key` (hex) is of the hash that assigns documents to shards: a user who chooses the names of PoolClaims
    can't choose a shard, and fill it. Generations that began before there was a key have none, and get none.
    """

    id: str
    shards: int
    head: str = ""
    uids: tuple[str, ...] = ()
    key: str = ""

    def names(self, ledger: str) -> list[str]:
        return [self._name(ledger, index) for index in range(self.shards)]

    def uid(self, ledger: str, name: str) -> str | None:
        """Return the UID that a shard of this name should have; None if it is of another generation."""
        prefix = self._name(ledger, 0)[:-2]
        return self.uids[int(name.removeprefix(prefix))] if name.startswith(prefix) else None

    def place(self, ledger: str, key: str) -> str:
        """Return the ConfigMap of this key: the head, or a shard by the key's last segment, so that the
        documents of one node are together, whatever their pools."""
        if "/" not in key:
            return ledger
        last = key.rpartition("/")[2].encode()
        digest = hashlib.blake2b(last, digest_size=4, key=bytes.fromhex(self.key)).digest()
        number = int.from_bytes(digest, "big")
        return self._name(ledger, number % self.shards)

    def _name(self, ledger: str, index: int) -> str:
        return f"{ledger}-{self.id}-{index:02d}"


class Content(msgspec.Struct, frozen=True, rename={"generation": "life"}):
    """`rev` counts the writes of this ConfigMap; only the head has a `generation`."""

    rev: int = 0
    documents: dict[str, tuple[Version, bytes]] = {}
    intent: Intent | None = None
    committed: dict[str, Committed] = {}
    generation: Generation | None = None


UNREADABLE = Content(rev=-1)
_decoder = msgspec.msgpack.Decoder(Content)
_encoder = msgspec.msgpack.Encoder()


def encode(content: Content) -> bytes:
    return pack(_encoder.encode(content))


def decode(data: bytes) -> Content:
    """Return the content; UNREADABLE for data that can't be read."""
    try:
        return _decoder.decode(unpack(data))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return UNREADABLE


def written(content: Content, writes: Bodies, stamp: Version) -> Content:
    """Return the content with these documents written; `stamp` is their version."""
    documents = {key: document for key, document in content.documents.items() if key not in writes}
    documents |= {key: (stamp, body) for key, body in writes.items() if body is not None}
    return replaced(content, documents=documents)


def applied(content: Content) -> Content:
    """Return the content with its intent carried out."""
    intent = content.intent
    return content if intent is None else replaced(written(content, intent.writes, intent.tx), intent=None)


def replaced(content: Content, **fields: object) -> Content:
    return msgspec.structs.replace(content, **fields)
