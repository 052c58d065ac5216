"""`host:port`, `id@host:port` and `host:count`: quorum voters, bootstrap servers, limits of single hosts."""

from __future__ import annotations

from typing import Final, NamedTuple

_INT_MAX: Final = 0x7FFFFFFF
_PORT_MAX: Final = 0xFFFF
_HOST: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-%._:")


class AddressError(ValueError):
    """A malformed address. The message says what was expected."""


class Address(NamedTuple):
    """`host` is as written, without the brackets of an IPv6 address."""

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
    """Reads `host:port` or `[ipv6]:port`; a `scheme://` may stand before it. Raises AddressError."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not is_host(host := host.removeprefix("[").removesuffix("]")):
        raise AddressError(f"entry {text!r} must be host:port")
    return Address(host, parse_port(port, text))


def parse_voter(text: str) -> Voter:
    """Reads `id@host:port`. Raises AddressError."""
    node_id, at, address = text.partition("@")
    if not at or "@" in address:
        raise AddressError(f"entry {text!r} must be id@host:port")
    return Voter(parse_node_id(node_id, text), parse_address(address))


def parse_limits(text: str) -> dict[str, int]:
    """Counts by host, from `host:count` entries; the last entry of a host counts. Raises AddressError."""
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
    """A number from 0 to 2^31 - 1. Raises AddressError, which names the entry."""
    number = _number(text, _INT_MAX)
    if number is None:
        raise AddressError(f"entry {entry!r} must begin with the id of a node, an int of at least 0")
    return number


def parse_port(text: str, entry: str) -> int:
    """A number from 0 to 65535. Raises AddressError, which names the entry."""
    number = _number(text, _PORT_MAX)
    if number is None:
        raise AddressError(f"entry {entry!r} must end with a port from 0 to 65535")
    return number


def _number(text: str, most: int) -> int | None:
    """A number from 0 to `most`; None for any other text."""
    # Check the length first: int() raises an error of its own for thousands of digits.
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None


def is_host(text: str) -> bool:
    """Whether the text has only characters of a name or an address. The empty text is the wildcard address."""
    return _HOST.issuperset(text)
