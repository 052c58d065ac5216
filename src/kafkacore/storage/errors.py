"""The errors about a log directory and about the small files in a log directory."""

from __future__ import annotations


def reason(error: Exception) -> str:
    """Returns the message of an error in readable form. For an OSError this is its text and path, without the error
    number that Python adds."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error)


class LogDirectoryError(Exception):
    """A log directory cannot be used. The message names the directory and the remedy."""


class LoadAbandoned(Exception):
    """The node stopped before it had loaded all logs."""


class MalformedFileError(LogDirectoryError):
    """A file has malformed content. The message names the file."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem
