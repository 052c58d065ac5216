"""Keeps the last log lines of the brokers in a process. All other handlers still receive these lines."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, Self

MAX_LINES: Final = 200
_ROOT: Final = "kafkacore"


class LogLines(logging.Handler):
    """Keeps lines of level INFO and above while a `with` block is open. Blocks may nest. Other handlers receive the
    same lines as without this object."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        self._logger = logging.getLogger(_ROOT)
        # This logger is between kafkacore's loggers and the root logger, so that the lower level applies to this
        # handler alone.
        self._fence = logging.Logger(f"{_ROOT}.fence")  # noqa: LOG001 - getLogger must not find it
        self._fence.propagate = False
        self._fence.addHandler(self)
        self._users = 0
        self._lowered = False

    def __enter__(self) -> Self:
        self._users += 1
        if self._users == 1:
            self._lowered = self._logger.level == logging.NOTSET
            self._fence.parent, self._logger.parent = self._logger.parent, self._fence
            if self._lowered:
                self._logger.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._users == 0:
            self._logger.parent = self._fence.parent
            if self._lowered and self._logger.level == logging.INFO:
                self._logger.setLevel(logging.NOTSET)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        above = self._fence.parent
        # Keeps a level that a test has set in the meantime (caplog.set_level).
        mine = self._lowered and self._logger.level == logging.INFO
        if above is not None and not (mine and record.levelno < above.getEffectiveLevel()):
            above.callHandlers(record)
