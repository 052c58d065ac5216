"""A directory for files that a node need not keep. A process that is killed cannot remove its own.

A process locks its directory. The next process that makes a directory beside it removes those that no process locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from typing import Final

_LOCK: Final = "lock"
_LOGS: Final = "logs"

_swept: set[tuple[str, str]] = set()


class TemporaryDirectory:
    """A directory below `where`, named `prefix` and something random. `logs` is for a broker. `close` removes all of
    it, but not in a child after fork. Raises OSError."""

    def __init__(self, prefix: str, where: str | None = None) -> None:
        self._pid = os.getpid()
        where = tempfile.gettempdir() if where is None else where
        if (where, prefix) not in _swept:
            _swept.add((where, prefix))
            remove_abandoned(where, prefix)
        while True:
            self._path = tempfile.mkdtemp(prefix=prefix, dir=where)
            self._lock = _hold(os.path.join(self._path, _LOCK), os.O_CREAT)
            if self._lock >= 0:
                # Before this process had the lock, another process took the directory for abandoned, and removes it.
                break
        self.logs = os.path.join(self._path, _LOGS)
        os.mkdir(self.logs)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(where: str, prefix: str) -> None:
    """Removes directories whose processes are gone."""
    for name in os.listdir(where):
        path = os.path.join(where, name)
        if not name.startswith(prefix):
            continue
        with contextlib.suppress(OSError):  # belongs to another user, or is being removed
            lock = _hold(os.path.join(path, _LOCK), 0)
            if lock >= 0:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _hold(path: str, flags: int) -> int:
    """Returns a descriptor that holds the lock, or -1 if another descriptor holds it, even one of this process."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return -1
    return file
