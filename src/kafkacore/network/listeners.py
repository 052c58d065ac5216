"""Opens listening sockets."""

from __future__ import annotations

import errno
import socket
from typing import Final, NamedTuple

_HINTS: Final = {
    errno.EADDRINUSE: "another process listens there; choose another port in {key}, or stop that process",
    errno.EADDRNOTAVAIL: "this machine has no such address; correct the host in {key}",
    errno.EACCES: "ports below 1024 need a privilege; choose a higher one in {key}",
}


class Listener(NamedTuple):
    """The address of a listener. A `host` of None means all addresses of the machine, and a `port` of 0 means any free
    port. `key` is the configuration key that names the listener."""

    name: str
    host: str | None
    port: int
    key: str = "listeners"


class ListenError(OSError):
    """A listener could not be opened. The message names the listener, the reason and a remedy."""


def listen(listener: Listener, backlog: int) -> socket.socket:
    """Returns a listening, non-blocking socket. Raises ListenError."""
    try:
        family, address = _resolve(listener)
        opened = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _explained(listener, error) from None
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The wildcard address includes IPv4. Other IPv6 addresses do not.
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if listener.host is None else 1)
        opened.setblocking(False)
        opened.bind(address)
        opened.listen(backlog)
    except OSError as error:
        opened.close()
        raise _explained(listener, error) from None
    return opened


def _resolve(listener: Listener) -> tuple[int, tuple[str, int]]:
    if listener.host is None:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", listener.port)
        return socket.AF_INET, ("0.0.0.0", listener.port)
    # The name is encoded here, because getaddrinfo loads the IDNA tables if it has to encode text, even for a plain
    # name or address.
    host = listener.host.encode() if listener.host.isascii() else listener.host
    found = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # IPv4 addresses come first: a name such as localhost has both kinds, and clients try 127.0.0.1 before ::1.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    family, _, _, _, address = found[0]
    return family, (str(address[0]), listener.port)


def _explained(listener: Listener, error: OSError) -> ListenError:
    where = f"{listener.name}://{listener.host or ''}:{listener.port}"
    hint = _HINTS.get(error.errno or 0, "").format(key=listener.key)
    text = f"cannot listen on {where}: {error.strerror or error}" + (f" ({hint})" if hint else "")
    return ListenError(error.errno or 0, text)
