"""`host:port` and `id@host:port`, as quorum voters and bootstrap servers are written."""

from __future__ import annotations

from typing import Final

from kafkacore._named_tuple import NamedTuple

_HOST: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-%._:")


class AddressError(ValueError):
    """An entry that is no address; the message says what was expected."""


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
    """From `host:port`, `[ipv6]:port`, or either behind `scheme://`. Raises AddressError."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not is_host(host := host.removeprefix("[").removesuffix("]")):
        raise AddressError(f"entry {text!r} must be host:port")
    return Address(host, parse_port(port, text))


def parse_voter(text: str) -> Voter:
    """From `id@host:port`. Raises AddressError."""
    node_id, at, address = text.partition("@")
    if not at or "@" in address:
        raise AddressError(f"entry {text!r} must be id@host:port")
    return Voter(parse_node_id(node_id, text), parse_address(address))


def parse_node_id(text: str, entry: str) -> int:
    """0 to 2^31 - 1. Raises AddressError that names the entry."""
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 31):
        raise AddressError(f"entry {entry!r} must begin with the id of a node, an int of at least 0")
    return int(text)


def parse_port(text: str, entry: str) -> int:
    """0 to 65535. Raises AddressError that names the entry."""
    if not (text.isascii() and text.isdigit() and int(text) <= 0xFFFF):
        raise AddressError(f"entry {entry!r} must end with a port from 0 to 65535")
    return int(text)


def is_host(text: str) -> bool:
    """Whether only characters of a name or an address are in it; nothing at all is the wildcard address."""
    return _HOST.issuperset(text)
