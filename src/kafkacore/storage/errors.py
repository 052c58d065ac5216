"""What is wrong with a log directory or a small file in it."""

from __future__ import annotations


class LogDirectoryError(Exception):
    """A log directory that cannot be used as it is; the message names it and says what to do."""


class MalformedFileError(LogDirectoryError):
    """A file whose content is not what it should be."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem
