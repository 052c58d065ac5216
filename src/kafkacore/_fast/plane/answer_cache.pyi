from collections.abc import Iterable

from kafkacore._fast.plane.plane import HotApi, NativePlane

ASKED_LIMIT: int

class CachedAnswers:
    def __init__(self, entries: Iterable[tuple[int, int, bytes, bytes]]) -> None: ...

class AnswerCache:
    def api(self) -> HotApi: ...
    def publish(self, plane: NativePlane, answers: CachedAnswers | None) -> None: ...
