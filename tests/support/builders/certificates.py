"""Self-signed certificates for servers of tests, made of nothing but Python: no openssl needs to be here.
Fit for tests alone: the arithmetic takes no care to hide the key."""

import base64
import hashlib
import secrets
from pathlib import Path

# The curve P-256 (FIPS 186-4, D.1.2.3): y² = x³ - 3x + b over the field of _P, with a base point of order _N.
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int]

_BOOLEAN, _INTEGER, _BITS, _OCTETS, _OID, _UTF8, _TIME = 0x01, 0x02, 0x03, 0x04, 0x06, 0x0C, 0x18
_SEQUENCE, _SET = 0x30, 0x31
_ECDSA_SHA256, _EC_KEY, _CURVE = "2a8648ce3d040302", "2a8648ce3d0201", "2a8648ce3d030107"
_COMMON_NAME, _KEY_ID, _KEY_USAGE, _NAMES, _BASIC = "550403", "551d0e", "551d0f", "551d11", "551d13"


def self_signed(
    folder: Path, host: str = "", address: tuple[int, int, int, int] | None = None
) -> tuple[Path, Path]:
    """A certificate for the host or address, which is its own authority, and its key, as PEM files."""
    folder.mkdir(parents=True, exist_ok=True)
    secret = 1 + secrets.randbelow(_N - 1)
    x, y = _times(secret, _G)
    public = b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
    signed = _to_be_signed(public, bytes(address) if address else b"", host)
    algorithm = _tlv(_SEQUENCE, _oid(_ECDSA_SHA256))
    certificate = _tlv(_SEQUENCE, signed, algorithm, _tlv(_BITS, b"\0", _signature(secret, signed)))
    key = _tlv(
        _SEQUENCE,
        _number(1),
        _tlv(_OCTETS, secret.to_bytes(32, "big")),
        _tlv(0xA0, _oid(_CURVE)),
        _tlv(0xA1, _tlv(_BITS, b"\0", public)),
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_text(_pem("CERTIFICATE", certificate))
    files[1].write_text(_pem("EC PRIVATE KEY", key))
    return files


def _to_be_signed(public: bytes, address: bytes, host: str) -> bytes:
    name = _tlv(_SEQUENCE, _tlv(_SET, _tlv(_SEQUENCE, _oid(_COMMON_NAME), _tlv(_UTF8, b"a test's server"))))
    alternative = _tlv(0x87, address) if address else _tlv(0x82, host.encode())
    extensions = (
        _extension(_BASIC, _tlv(_SEQUENCE, _tlv(_BOOLEAN, b"\xff")), critical=True),
        _extension(_KEY_USAGE, _tlv(_BITS, b"\2\x84"), critical=True),  # it signs, also certificates
        _extension(_NAMES, _tlv(_SEQUENCE, alternative)),
        _extension(_KEY_ID, _tlv(_OCTETS, hashlib.sha256(public).digest()[:20])),
    )
    return _tlv(
        _SEQUENCE,
        _tlv(0xA0, _number(2)),  # X.509 version 3
        _number(1 + secrets.randbits(64)),
        _tlv(_SEQUENCE, _oid(_ECDSA_SHA256)),
        name,
        _tlv(_SEQUENCE, _tlv(_TIME, b"20200101000000Z"), _tlv(_TIME, b"99991231235959Z")),
        name,
        _tlv(_SEQUENCE, _tlv(_SEQUENCE, _oid(_EC_KEY), _oid(_CURVE)), _tlv(_BITS, b"\0", public)),
        _tlv(0xA3, _tlv(_SEQUENCE, *extensions)),
    )


def _extension(name: str, value: bytes, *, critical: bool = False) -> bytes:
    mark = _tlv(_BOOLEAN, b"\xff") if critical else b""
    return _tlv(_SEQUENCE, _oid(name), mark, _tlv(_OCTETS, value))


def _signature(secret: int, message: bytes) -> bytes:
    while True:
        once = 1 + secrets.randbelow(_N - 1)
        r = _times(once, _G)[0] % _N
        s = pow(once, -1, _N) * (int.from_bytes(hashlib.sha256(message).digest(), "big") + r * secret) % _N
        if r and s:
            return _tlv(_SEQUENCE, _number(r), _number(s))


def _times(factor: int, point: _Point) -> _Point:
    total: _Point | None = None
    while factor:
        if factor & 1:
            total = point if total is None else _sum(total, point)
        point = _sum(point, point)
        factor >>= 1
    assert total is not None
    return total


def _sum(one: _Point, other: _Point) -> _Point:
    (x1, y1), (x2, y2) = one, other
    rise, run = (3 * x1 * x1 - 3, 2 * y1) if one == other else (y2 - y1, x2 - x1)
    slope = rise * pow(run, -1, _P)
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _tlv(tag: int, *parts: bytes) -> bytes:
    value = b"".join(parts)
    if len(value) < 128:
        return bytes([tag, len(value)]) + value
    length = len(value).to_bytes((len(value).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + value


def _number(value: int) -> bytes:
    return _tlv(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _oid(encoded: str) -> bytes:
    return _tlv(_OID, bytes.fromhex(encoded))


def _pem(kind: str, der: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(der).decode()}-----END {kind}-----\n"
