"""Parses `host:port`, `id@host:port` and `host:count`, for quorum voters, bootstrap servers and limits of single
hosts."""

from __future__ import annotations

from typing import Final, NamedTuple

_INT_MAX: Final = 0x7FFFFFFF
_PORT_MAX: Final = 0xFFFF
_HOST: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-%._:")


class AddressError(ValueError):
    """A malformed address. The message names the expected form."""


class Address(NamedTuple):
    """An address. `host` is as written, but without the brackets of an IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Voter(NamedTuple):
    """An entry of controller.quorum.voters."""

    node_id: int
    address: Address

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


def parse_address(text: str) -> Address:
    """Parses `host:port` or `[ipv6]:port`, with an optional `scheme://` in front. Raises AddressError."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not is_host(host := host.removeprefix("[").removesuffix("]")):
        raise AddressError(f"entry {text!r} must be host:port")
    return Address(host, parse_port(port, text))


def parse_voter(text: str) -> Voter:
    """Parses `id@host:port`. Raises AddressError."""
    node_id, at, address = text.partition("@")
    if not at or "@" in address:
        raise AddressError(f"entry {text!r} must be id@host:port")
    return Voter(parse_node_id(node_id, text), parse_address(address))


def parse_limits(text: str) -> dict[str, int]:
    """Parses `host:count` entries. Returns the count of each host. If a host occurs twice, its last entry counts.
    Raises AddressError."""
    limits: dict[str, int] = {}
    for entry in text.split(",") if text else ():
        host, colon, count = entry.strip().rpartition(":")
        number = _number(count.strip(), _INT_MAX)
        if not colon or number is None:
            raise AddressError(f"entry {entry.strip()!r} must be host:count, a count from 0 to {_INT_MAX}")
        if not is_host(host.strip()):
            raise AddressError(f"{host.strip()!r} is not the name or address of a host")
        limits[host.strip()] = number
    return limits


def parse_node_id(text: str, entry: str) -> int:
    """Parses a number from 0 to 2^31 - 1. Raises AddressError, which names the entry."""
    number = _number(text, _INT_MAX)
    if number is None:
        raise AddressError(f"entry {entry!r} must begin with the id of a node, an int of at least 0")
    return number


def parse_port(text: str, entry: str) -> int:
    """Parses a number from 0 to 65535. Raises AddressError, which names the entry."""
    number = _number(text, _PORT_MAX)
    if number is None:
        raise AddressError(f"entry {entry!r} must end with a port from 0 to 65535")
    return number


def parse_replica(entry: str) -> tuple[int, int] | None:
    """Parses partition:broker (KIP-73). Returns None for any other text."""
    partition, _, broker = entry.partition(":")
    index, node_id = _number(partition, _INT_MAX), _number(broker, _INT_MAX)
    return None if index is None or node_id is None else (index, node_id)


def _number(text: str, most: int) -> int | None:
    """Parses a number from 0 to `most`. Returns None for any other text."""
    # Check the length first, because int() raises its own error for thousands of digits.
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None


def is_host(text: str) -> bool:
    """Returns whether all characters of the text can occur in a host name or an address. The empty text is the wildcard
    address."""
    return _HOST.issuperset(text)
