"""A process without a free file descriptor."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def no_free_descriptor() -> Iterator[Callable[[], None]]:
    """Returns a context manager. Inside it, the process cannot open a file. The files that are already open stay open.
    A call of the yielded function ends this limit early."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def end() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # leaves only standard input, output and error
    try:
        yield end
    finally:
        end()
