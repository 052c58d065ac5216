"""The errors of a log directory and of the small files in it."""

from __future__ import annotations


def reason(error: Exception) -> str:
    """The message of an error for people; of an OSError its text and path, without the number that Python adds."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error)


class LogDirectoryError(Exception):
    """A log directory that cannot be used. The message names it and says what to do."""


class MalformedFileError(LogDirectoryError):
    """A file with malformed content."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem
