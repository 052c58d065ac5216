"""Inflates and deflates gzip, snappy, lz4 and zstd in Kafka's framings, within size limits and without the GIL."""

from typing import NamedTuple

from typing_extensions import Buffer

NAMES: dict[str, int]

class CodecError(ValueError):
    """A body cannot be inflated, or it exceeds a limit."""

    code: int

class Codec:
    """The contexts of the compression libraries for one thread. They are reused for each body of a batch.

    `max_bytes` limits the inflated size of a body. `max_ratio` limits the ratio of the inflated size to the stored
    size, but only for a body that inflates to more than `ratio_floor_bytes`.
    """

    def __init__(
        self, *, max_bytes: int | None = None, max_ratio: int | None = None, ratio_floor_bytes: int | None = None
    ) -> None: ...
    def inflate(self, codec: str | int, data: Buffer) -> bytes:
        """Returns the inflated body of a batch. Raises CodecError."""

    def chunks(self, codec: str | int, data: Buffer) -> list[bytes]:
        """Returns the inflated body in the chunks in which the validator gets it. Raises CodecError."""

    def deflate(self, codec: str | int, data: Buffer, level: int | None = None) -> bytes:
        """Returns the body compressed in Kafka's framing. `level` is a value of Kafka's compression.*.level. Raises
        CodecError."""

def needs_gil(codec: str | int) -> bool:
    """Returns whether the C library of this codec is missing. In that case cramjam replaces the library and holds the
    GIL while it works."""

class CodecLibrary(NamedTuple):
    """The library that inflates or deflates one codec.

    `name` is zlib-ng, zlib, libsnappy, liblz4 or libzstd. If the C library is missing, `name` is cramjam or kafkacore.
    `version` is None if the library does not report its version. `path` is the library's file, or None for cramjam and
    for our own code. `is_fallback` is true if a faster library exists but is not installed.
    """

    codec: str
    work: str
    name: str
    version: str | None
    path: str | None
    is_fallback: bool

def codec_libraries() -> list[CodecLibrary]:
    """Returns two entries for each codec, in the order of Kafka's codec ids: the library that inflates and the library
    that deflates (`work`). Opens the libraries that are not open yet."""
