from collections.abc import Sequence

class EndpointTable:
    def __init__(self, endpoints: Sequence[tuple[int, int, str, int, str | None]]) -> None: ...
