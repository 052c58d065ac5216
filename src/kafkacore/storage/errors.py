"""What is wrong with a log directory or a small file in it."""

from __future__ import annotations


def reason(error: Exception) -> str:
    """What to tell a person: for an OSError its words and path, without Python's number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error)


class LogDirectoryError(Exception):
    """A log directory that cannot be used as it is; the message names it and says what to do."""


class MalformedFileError(LogDirectoryError):
    """A file whose content is not what it should be."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem
