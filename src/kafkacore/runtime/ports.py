"""Free ports for the nodes of a demo or a test."""

from __future__ import annotations

import random
import socket
from typing import Final

# These ports are below the kernel's ephemeral range. An outgoing connection never takes one of them while its node is
# down, so the node can start again on the same port.
PORTS: Final = range(16_384, 32_768)


def free_ports(count: int, host: str) -> list[int]:
    """Returns ports of this host on which nothing listens.

    :raises OSError: fewer than `count` ports are free
    """
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the node's listener does later
            try:
                probe.bind((host, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            break
    if len(found) < count:
        raise OSError(f"host {host} has fewer than {count} free ports from {PORTS.start} to {PORTS.stop}")
    return found
