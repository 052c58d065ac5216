from collections.abc import Iterable

from kafkacore._fast.plane.plane import HotApi, NativePlane

ASKED_LIMIT: int

class PreparedAnswers:
    def __init__(self, entries: Iterable[tuple[int, int, bytes, bytes]]) -> None: ...

class PreparedSlot:
    def api(self) -> HotApi: ...
    def publish(self, plane: NativePlane, answers: PreparedAnswers | None) -> None: ...
