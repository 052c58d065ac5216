"""A leader's checks of a produced batch, and a follower's checks of fetched bytes."""

from typing import Literal, NamedTuple

from typing_extensions import Buffer

from kafkacore._fast.codec.compression import Codec

class Verdict(NamedTuple):
    """The result of a check of a batch. `error` is a Kafka error code, 0 for success. The items of `record_errors` are
    (index, message)."""

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
    """The result of a check of a leader's response. It describes the whole batches at the start of the response, up to
    the first fault."""

    error: int
    message: str | None
    batch_count: int
    valid_bytes: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    last_leader_epoch: int

class Validator:
    """The rules of one partition for produced batches. The names follow Kafka's topic configuration."""

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
        """Checks a batch. Returns the verdict without the bytes. Does not change `data`."""

    def accept(self, data: Buffer, now_ms: int, base_offset: int) -> Verdict:
        """Checks a batch. If the batch is accepted, the verdict has the bytes that the log stores, with offsets."""

def follow(data: Buffer, leader_epoch: int) -> Followed:
    """Checks a leader's response to a Fetch: sizes, magic bytes and checksums, and that offsets increase."""
