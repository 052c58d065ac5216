from collections.abc import Iterable, Mapping
from typing import Any

ACTIONS: tuple[str, ...]

class GatePolicy:
    def __init__(self, otherwise: str = "serve", rules: Iterable[Mapping[str, Any]] = ()) -> None: ...
    def judge(self, api_key: int, client_id: str | None) -> tuple[str, int, int, int]: ...
