from typing import Any

from typing_extensions import Buffer

class Binding:
    name: str
    lowest: int
    highest: int
    def __init__(
        self, name: str, lowest: int, highest: int, structs: dict[str, tuple[int, dict[str, int]]]
    ) -> None: ...
    def read_times(self, data: Buffer, version: int, times: int) -> None: ...
    def copy(
        self, data: Buffer, version: int, cut_records: bool = False, arena_bytes: int = ...
    ) -> tuple[dict[str, Any], bytes, list[tuple[int, int]]]: ...
