"""RLIMIT_NOFILE: the number of files and connections that a process may have open."""

from __future__ import annotations

import errno
import logging
import resource
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

LOG: Final = logging.getLogger("kafkacore.runtime")
# Descriptors that a process needs in addition to the files of logs: for connections, libraries, and files that are open
# only briefly.
SPARE_FILES: Final = 1000
ADVICE: Final = (
    "raise the limit of open files (ulimit -n, or LimitNOFILE= of a systemd unit): a partition keeps one file open "
    "after its first append; each of its older segments keeps one open after a read, and three after an index look-up"
)
SHORTAGE: Final = (errno.EMFILE, errno.ENFILE)  # no file descriptor is free; the disk has not failed
WAIT_ROUNDS: Final = 1500  # a step waits this many times for a file descriptor, for 30 s in total
WAIT_S: Final = 0.02

Result = TypeVar("Result")


def raise_limit() -> None:
    """Raises the soft limit of this process to its hard limit, as the JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            LOG.warning("the limit of open files could not be raised and stays %d: %s", soft, error)


def warn_of(logs: int) -> None:
    """Warns if the limit is too low for appends to this number of logs."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and logs + SPARE_FILES > limit:
        LOG.warning("there are %d logs, but the limit of open files is %d: %s", logs, limit, ADVICE)


def explain(error_number: int) -> str:
    """Returns advice to append to the text of an error. The advice is empty for most errors."""
    return f"; {ADVICE}" if error_number in SHORTAGE else ""


def finish(step: Callable[..., Result], *arguments: Any) -> Result:
    """Runs a step that must not fail for want of a file descriptor, and returns its result. If no descriptor is free,
    waits for one for up to 30 s, as native code does (log/jobs.pxd), and runs the step again. The call blocks. Raises
    OSError."""
    for _ in range(WAIT_ROUNDS):
        try:
            return step(*arguments)
        except OSError as error:
            if error.errno not in SHORTAGE:
                raise
            time.sleep(WAIT_S)
    return step(*arguments)
