"""Content-Encoding of requests and answers."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cramjam

from mycroft.local.store_errors import (
    CANNOT_DECOMPRESS,
    UNKNOWN_COMPRESSION_METHOD,
    refused,
)

_READERS: dict[str, Callable[[bytes], object]] = {
    "gzip": cramjam.gzip.decompress,
    "deflate": zlib.decompress,
    "zstd": cramjam.zstd.decompress,
    "lz4": cramjam.lz4.decompress,
    "br": cramjam.brotli.decompress,
}
# On loopback speed counts, not size; the first one that the client takes is used.
_WRITERS: dict[str, Callable[[bytes], object]] = {
    "zstd": lambda body: cramjam.zstd.compress(body, level=1),
    "gzip": lambda body: cramjam.gzip.compress(body, level=1),
}


def decompress(body: bytes, encoding: str) -> bytes:
    """The body as it was before `encoding`; raises QueryError where it is unknown or the body is broken."""
    if encoding in ("", "identity"):
        return body
    reader = _READERS.get(encoding)
    if reader is None:
        text = f"Unknown compression method: {encoding}"
        raise refused(UNKNOWN_COMPRESSION_METHOD, "UNKNOWN_COMPRESSION_METHOD", text)
    try:
        return bytes(reader(body))  # type: ignore[call-overload, no-any-return]
    except (cramjam.DecompressionError, zlib.error) as error:
        text = f"Cannot decompress {encoding} body: {error}"
        raise refused(CANNOT_DECOMPRESS, "CANNOT_DECOMPRESS", text) from error


def compress(body: bytes, accepted: str) -> tuple[bytes, str]:
    """The body and its encoding, chosen from an Accept-Encoding header; ("" where none is known).

    >>> compress(b"x", "br, identity")
    (b'x', '')
    """
    names = {part.split(";")[0].strip() for part in accepted.split(",")}
    for name, writer in _WRITERS.items():
        if name in names:
            return bytes(writer(body)), name  # type: ignore[call-overload]
    return body, ""
