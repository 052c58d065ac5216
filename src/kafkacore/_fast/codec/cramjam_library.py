"""Inflates and deflates gzip, lz4 and zstd with cramjam, on a machine that lacks one of the C libraries. cramjam holds
the GIL while it works.
"""

from __future__ import annotations

from typing import Any

import cramjam

FIRST_GUESS = 4  # the first output buffer is this many times as large as the input
LEAST_OUTPUT_BYTES = 65536
BUFFER_TOO_SMALL = "failed to write whole buffer"  # cramjam's text; it raises the same exception for every cause

GZIP, LZ4, ZSTD = 1, 3, 4
MODULES = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}


class TooLargeError(ValueError):
    """The inflated body exceeds its limit."""


def inflate(codec: int, data: memoryview, limit_bytes: int) -> memoryview:
    """Returns the whole inflated body.

    Raises:
        TooLargeError: the inflated body has more than `limit_bytes` bytes.
        cramjam.DecompressionError: the body is malformed.
    """
    size_bytes = min(max(len(data) * FIRST_GUESS, LEAST_OUTPUT_BYTES), limit_bytes)
    while True:
        output = bytearray(size_bytes)
        try:
            written = MODULES[codec].decompress_into(data, output)
            return memoryview(output)[:written]
        except cramjam.DecompressionError as error:
            if BUFFER_TOO_SMALL not in str(error):
                raise
        if size_bytes >= limit_bytes:
            raise TooLargeError(f"the body inflates to more than {limit_bytes} bytes")
        size_bytes = min(size_bytes * 2, limit_bytes)


def deflate(codec: int, level: int, data: memoryview) -> Any:
    """Returns the compressed body in Kafka's framing as a buffer."""
    if codec == LZ4:  # Kafka reads only independent blocks
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return compressor.finish()
    return MODULES[codec].compress(data, level=level)
