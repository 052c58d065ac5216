"""What a leader asks of a produced batch, and what a follower asks of the bytes it was sent."""

from typing import Literal, NamedTuple

from typing_extensions import Buffer

from kafkacore._fast.codec.compression import Codec

class Verdict(NamedTuple):
    """What became of a batch. `error` is Kafka's code, 0 when it was accepted; `record_errors` are (index, message)."""

    error: int
    message: str | None
    record_errors: tuple[tuple[int, str], ...]
    data: bytes | None
    record_count: int
    max_timestamp: int
    max_timestamp_index: int
    log_append_time_ms: int
    body_bytes: int
    rewritten: bool

class Followed(NamedTuple):
    """Whole, sound batches at the start of what a leader sent."""

    error: int
    message: str | None
    batch_count: int
    valid_bytes: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    last_leader_epoch: int

class Validator:
    """One partition's rules for batches that are produced to it; names as Kafka's topic configuration."""

    def __init__(
        self,
        *,
        compacted: bool = False,
        log_append_time: bool = False,
        timestamp_before_max_ms: int = ...,
        timestamp_after_max_ms: int = 3600000,
        max_message_bytes: int = 1048588,
        compression: str = "producer",
        level: int | None = None,
        origin: Literal["client", "coordinator", "raft"] = "client",
        leader_epoch: int = 0,
        transactional_allowed: bool = False,
        zstd_allowed: bool = True,
        codec: Codec | None = None,
    ) -> None: ...
    def check(self, data: Buffer, now_ms: int) -> Verdict:
        """The verdict alone, `data` untouched and None in the verdict."""

    def accept(self, data: Buffer, now_ms: int, base_offset: int) -> Verdict:
        """The verdict and, when the batch is accepted, its bytes as the log stores them, with offsets assigned."""

def follow(data: Buffer, leader_epoch: int) -> Followed:
    """Checks what a leader sent in a Fetch: sizes, magic, checksums, offsets that grow."""
