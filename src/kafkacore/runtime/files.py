"""Reads and writes small files as a whole, for checkpoints and similar files.

Native code reads and writes segments and indexes through its environment. Python code reads and writes the other files
through `Files`, so that a simulated disk can lose unsynced changes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Sequence
from typing import Final, Protocol

from kafkacore._fast.world.environment import list_directory, list_each


class Lock(Protocol):
    """The lock of a file. The holder keeps the lock until the holder closes this object."""

    def close(self) -> None: ...


class Files(Protocol):
    """Operations on files. Every function raises OSError as the operating system does: FileNotFoundError,
    PermissionError, ENOSPC and so on."""

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file, and syncs it. This is not atomic; see `replace`."""

    def read_part(self, path: str, position: int, max_bytes: int) -> bytes: ...

    def write_part(self, path: str, position: int, data: bytes) -> None:
        """Truncates the file at `position`, and writes the data there. Creates the file if `position` is 0. Does not
        sync."""

    def sync(self, path: str) -> None:
        """Makes a file's content durable."""

    def size(self, path: str) -> int: ...

    def rename(self, old: str, new: str) -> None:
        """Renames a file atomically; `new` may exist. The rename is durable after `sync_directory`."""

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Makes the names in a directory durable."""

    def make_directories(self, path: str) -> None:
        """Creates a directory and its parents, durably. The directory may already exist."""

    def list_directories(self, path: str) -> list[str]:
        """Returns the names of the directories in a directory, sorted."""

    def list(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted."""

    def is_directory(self, path: str) -> bool: ...

    def exists(self, path: str) -> bool: ...

    def lock(self, path: str) -> Lock:
        """Locks a file, and creates the file if needed. Raises BlockingIOError if another holder has the lock."""


def replace(files: Files, path: str, data: bytes) -> None:
    """Replaces a file's content by `data`. After a crash the file has either the whole old content or the whole new
    one. Raises OSError.

    As in Kafka, the temporary file has the name `path` with `.tmp` appended. If a crash leaves this file, the node
    removes it at its next start.
    """
    temporary = f"{path}.tmp"
    files.write(temporary, data)
    files.rename(temporary, path)
    files.sync_directory(os.path.dirname(path) or ".")


class OsFiles:
    """The files of the operating system."""

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        with open(path, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())

    def read_part(self, path: str, position: int, max_bytes: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(position)
            return file.read(max_bytes)

    def write_part(self, path: str, position: int, data: bytes) -> None:
        with open(path, "r+b" if position else "wb") as file:
            file.truncate(position)
            file.seek(position)
            file.write(data)

    def sync(self, path: str) -> None:
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_directories(self, path: str) -> None:
        if os.path.isdir(path):
            return
        above = os.path.dirname(os.path.abspath(path))
        self.make_directories(above)
        with contextlib.suppress(FileExistsError):  # another process has created it in the meantime
            os.mkdir(path)
        self.sync_directory(above)

    def list_directories(self, path: str) -> list[str]:
        return list_directory(path, only_directories=True)

    def list(self, path: str) -> list[str]:
        return list_directory(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def lock(self, path: str) -> Lock:
        return _PosixLock(path)


OS_FILES: Final = OsFiles()


def names_in(paths: Sequence[str], files: Files) -> list[list[str]]:
    """Lists many directories, as `list` does for one. Makes all requests to the operating system at the same time."""
    return list_each(paths) if files is OS_FILES else [files.list(path) for path in paths]


# POSIX locks belong to the process. They do not exclude another holder in the same process, and they end when the
# process closes any descriptor of the file. So this process records its locked files, by device and inode, in this
# table, and looks there for another holder before it opens a file.
_held: Final[set[tuple[int, int]]] = set()
_held_mutex: Final = threading.Lock()
_FLOCK: Final = struct.Struct("hhqqi")  # type, whence, start, length, process


class _PosixLock:
    """A lock by fcntl, as Java's FileChannel.lock makes it, and its entry in the process's table of locked files."""

    def __init__(self, path: str) -> None:
        with _held_mutex:
            self._take(path)

    def _take(self, path: str) -> None:
        if os.path.exists(path) and _identity(os.stat(path)) in _held:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from None
            raise
        self._descriptor = descriptor
        self._identity = _identity(os.fstat(descriptor))
        self._owner_pid = os.getpid()
        _held.add(self._identity)

    def close(self) -> None:
        with _held_mutex:
            if self._descriptor < 0:
                return
            os.close(self._descriptor)
            self._descriptor = -1
            if self._owner_pid == os.getpid():
                _held.discard(self._identity)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def lock_holder(path: str) -> int | None:
    """Returns the id of the process that has locked a file. Returns 0 if the holder of the lock is unknown, because the
    holder is on another host or uses another kind of lock. Returns None if no process has locked the file. Raises
    OSError."""
    if _identity(os.stat(path)) in _held:
        return os.getpid()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(0, pid)
