"""The file .lock. It ensures that only one node at a time, kafkacore's or Apache Kafka's, uses a log directory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Final

from kafkacore.runtime.files import OS_FILES, Files, Lock
from kafkacore.storage.errors import LogDirectoryError

NAME: Final = ".lock"


class UnwritableDirectoryError(LogDirectoryError):
    """The lock file of a directory cannot be written."""


class DirectoryLocks:
    """The locks of all directories of a node. The constructor takes all of them, and `close` releases them.

    If a directory in `dispensable` is not writable, it stays unlocked. This raises no error, but `failed` contains the
    directory.
    """

    def __init__(
        self,
        directories: Iterable[str],
        files: Files = OS_FILES,
        *,
        dispensable: Collection[str] = (),
    ) -> None:
        """Locks the directories. If a directory is in use or cannot be written, raises LogDirectoryError and holds no
        lock."""
        self._locks: dict[str, Lock] = {}
        self.failed: dict[str, Exception] = {}
        try:
            for directory in dict.fromkeys(directories):
                try:
                    self._locks[directory] = _lock(directory, files)
                except UnwritableDirectoryError as error:
                    if directory not in dispensable:
                        raise
                    self.failed[directory] = error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self._locks:
            self._locks.popitem()[1].close()


def _lock(directory: str, files: Files) -> Lock:
    path = os.path.join(directory, NAME)
    try:
        return files.lock(path)
    except BlockingIOError as error:
        raise LogDirectoryError(
            f"{directory}: in use by another node, {path} is {error.strerror}; "
            "stop that node, or give this one its own directory (log.dirs)"
        ) from None
    except OSError as error:
        raise UnwritableDirectoryError(
            f"{directory}: {path} cannot be opened for writing: {error.strerror}; "
            "make the directory writable for this user, or use another one (log.dirs)"
        ) from error
