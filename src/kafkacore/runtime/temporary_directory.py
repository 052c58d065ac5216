"""A directory for files that are needed only while a node runs.

A process removes its directory at its end, but a killed process cannot. So every process locks its directory. A process
that creates such a directory also removes the directories that no process has locked.
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
    """A directory in `where`. Its name consists of `prefix` and random characters. `logs` is the directory for a
    broker's logs. `close` removes everything. In a child process after fork, it removes nothing. Raises OSError."""

    def __init__(self, prefix: str, where: str | None = None) -> None:
        self._pid = os.getpid()
        where = tempfile.gettempdir() if where is None else where
        if (where, prefix) not in _swept:
            _swept.add((where, prefix))
            remove_abandoned(where, prefix)
        while True:
            self._path = tempfile.mkdtemp(prefix=prefix, dir=where)
            self._lock = _hold(os.path.join(self._path, _LOCK), os.O_CREAT)
            # If the lock fails, another process considered this directory abandoned before this process could lock it,
            # and now removes it. The loop then creates another directory.
            if self._lock >= 0:
                break
        self.logs = os.path.join(self._path, _LOGS)
        os.mkdir(self.logs)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(where: str, prefix: str) -> None:
    """Removes the directories of processes that no longer exist."""
    for name in os.listdir(where):
        path = os.path.join(where, name)
        if not name.startswith(prefix):
            continue
        with contextlib.suppress(OSError):  # the directory belongs to another user, or another process is removing it
            lock = _hold(os.path.join(path, _LOCK), 0)
            if lock >= 0:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _hold(path: str, flags: int) -> int:
    """Locks the file and returns its descriptor. Returns -1 if another descriptor has the lock, even a descriptor of
    this process."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return -1
    return file
