"""Packs what stores keep in small places, where each kilobyte costs, and unpacks it within a bound.
A gigabyte of zeros packs into a megabyte: what unpacks into more than was ever packed is not ours."""

import zlib

LARGEST = 64 * 1024 * 1024
"""Bytes that anything unpacks into; a ConfigMap's 750 KiB hold some 6 MB of claims."""


def pack(body: bytes) -> bytes:
    """Claims shrink to a fifth."""
    return zlib.compress(body, 1)


def unpack(data: bytes) -> bytes:
    """Return what was packed. Raises ValueError where that is nothing of ours."""
    packer = zlib.decompressobj()
    try:
        found = packer.decompress(data, LARGEST)
    except zlib.error as error:
        raise ValueError(f"it can't be unpacked: {error}") from error
    if not packer.eof:
        raise ValueError("it is cut, or too large")
    return found
