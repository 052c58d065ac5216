"""gzip, snappy, lz4 and zstd in Kafka's framings, bounded, without the GIL."""

from typing import NamedTuple

from typing_extensions import Buffer

NAMES: dict[str, int]

class CodecError(ValueError):
    """A body that does not inflate, or that exceeds a limit."""

    code: int

class Codec:
    """One thread's contexts of the libraries, kept between bodies.

    `max_bytes` limits the inflated size of a body; `max_ratio` limits inflated : stored, checked once a body
    inflates beyond `ratio_floor_bytes`.
    """

    def __init__(
        self, *, max_bytes: int | None = None, max_ratio: int | None = None, ratio_floor_bytes: int | None = None
    ) -> None: ...
    def inflate(self, codec: str | int, data: Buffer) -> bytes:
        """The inflated body of a batch. Raises CodecError."""

    def chunks(self, codec: str | int, data: Buffer) -> list[bytes]:
        """The body in the pieces in which the validator sees it. Raises CodecError."""

    def deflate(self, codec: str | int, data: Buffer, level: int | None = None) -> bytes:
        """The body compressed in Kafka's framing; `level` as in Kafka's compression.*.level. Raises CodecError."""

def needs_gil(codec: str | int) -> bool:
    """Whether this codec's library is missing, so that cramjam replaces it and takes the GIL."""

class CodecLibrary(NamedTuple):
    """The library that inflates or deflates one codec.

    `name` is zlib-ng, zlib, libsnappy, liblz4, libzstd, or cramjam or kafkacore where the C library is missing.
    `version` is None where the library reports none. `path` is the library's file, None for cramjam and for our own
    code. `is_fallback` says that a faster library exists but is not installed.
    """

    codec: str
    work: str
    name: str
    version: str | None
    path: str | None
    is_fallback: bool

def codec_libraries() -> list[CodecLibrary]:
    """The library that inflates and the one that deflates each codec (`work`), in the order of Kafka's codec ids. Opens
    the libraries that are not open yet."""
