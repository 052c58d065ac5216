"""Free ports for the nodes of a demo or a test."""

from __future__ import annotations

import itertools
import random
import socket
from functools import partial
from typing import Final

# These ports are below the kernel's ephemeral range. An outgoing connection never takes one of them while its node is
# down, so the node can start again on the same port.
PORTS: Final = range(16_384, 32_768)
_FIRST: Final = random.SystemRandom().randrange(len(PORTS))
_NEXT_PORTS: Final = itertools.cycle([*PORTS[_FIRST:], *PORTS[:_FIRST]])


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Returns ports of this host on which nothing listens. Each process begins at a random place in the range, and uses
    all ports before it uses one again.

    :raises OSError: fewer than `count` ports are free
    """
    free = filter(partial(is_free, host=host), itertools.islice(_NEXT_PORTS, len(PORTS)))
    found = list(itertools.islice(free, count))
    if len(found) < count:
        raise OSError(f"host {host} has only {len(found)} of {count} free ports from {PORTS.start} to {PORTS.stop}")
    return found


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the node's listener does later
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
