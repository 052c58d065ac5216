from collections.abc import Iterable, Mapping

class LoadResult:
    requests: int
    errors: int
    broken: int
    sent_bytes: int
    received_bytes: int
    elapsed_ns: int
    cpu_ns: int
    buckets: Mapping[int, int]
    def __init__(
        self,
        *,
        requests: int,
        errors: int,
        broken: int,
        sent_bytes: int,
        received_bytes: int,
        elapsed_ns: int,
        cpu_ns: int,
        buckets: Mapping[int, int],
    ) -> None: ...
    def percentile_ns(self, share: float) -> int: ...

class Load:
    depth: int
    def __init__(
        self,
        host: str,
        port: int,
        connections: int = 1,
        depth: int = 1,
        *,
        spin: bool = False,
        discard: bool = False,
        connect_timeout_seconds: float = 10.0,
    ) -> None: ...
    def close(self) -> None: ...
    def run(
        self, requests: Iterable[bytes], *, seconds: float = 3600.0, count: int = -1, error_at: int = -1
    ) -> LoadResult: ...
