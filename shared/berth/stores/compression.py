"""Compresses documents for stores where a kilobyte costs, and uncompresses them within a bound.
A gigabyte of zeros packs into a megabyte: what unpacks into more than was ever packed is not ours."""

import zlib

LARGEST = 64 * 1024 * 1024
"""The most bytes that are unpacked; a ConfigMap's 750 KiB hold some 6 MB of claims."""


def pack(body: bytes) -> bytes:
    """Return the body compressed; claims shrink to a fifth."""
    return zlib.compress(body, 1)


def unpack(data: bytes) -> bytes:
    """Return what was packed. Raises ValueError for data that Berth never packed."""
    packer = zlib.decompressobj()
    try:
        body = packer.decompress(data, LARGEST)
    except zlib.error as error:
        raise ValueError(f"it can't be unpacked: {error}") from error
    if not packer.eof:
        raise ValueError("it is cut, or too large")
    return body
