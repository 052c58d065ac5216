"""RLIMIT_NOFILE: how many files and connections a process may have open."""

from __future__ import annotations

import errno
import logging
import resource
from typing import Final

LOG: Final = logging.getLogger("kafkacore.runtime")
SPARE_FILES: Final = 1000  # beside those of logs: connections, libraries, what is open for a moment
ADVICE: Final = (
    "raise the limit of open files (ulimit -n, or LimitNOFILE= of a systemd unit): a partition has one open from its "
    "first append on, each of its older segments one more once it was read, and three once it was looked up in"
)


def raise_limit() -> None:
    """The soft limit of this process becomes the hard one, as the JVM's does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            LOG.warning("the limit of open files stays %d: %s", soft, error)


def warn_of(logs: int) -> None:
    """Where so many logs cannot all be appended to."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and logs + SPARE_FILES > limit:
        LOG.warning("%d logs, and no more than %d open files: %s", logs, limit, ADVICE)


def explain(error_number: int) -> str:
    """What to do about an error, to be put behind it; nothing for most."""
    return f"; {ADVICE}" if error_number in (errno.EMFILE, errno.ENFILE) else ""
