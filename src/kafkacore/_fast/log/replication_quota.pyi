NO_BOUND: int
BY_LEADER: int
BY_FOLLOWER: int

class ReplicationQuota:
    """A quota for the bytes per second that a broker sends or fetches for throttled partitions (KIP-73).

    `samples` and `sample_ms` are replication.quota.window.num and replication.quota.window.size.seconds."""

    bytes_per_second: int

    def __init__(self, samples: int = 11, sample_ms: int = 1000, bytes_per_second: int = ...) -> None: ...
    def record(self, size_bytes: int, now_ms: int) -> None: ...
    def exceeded(self, now_ms: int) -> bool: ...
    def rate(self, now_ms: int) -> float:
        """Returns the bytes per second over the window, as the metric byte-rate shows them."""
