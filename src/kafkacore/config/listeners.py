"""Listeners: the addresses of a node, the addresses that it advertises to clients, and their security protocols."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kafkacore.config.addresses import AddressError, is_host, parse_port
from kafkacore.config.errors import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
SECURITY_PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PROTOCOL_MAP: Final = "listener.security.protocol.map"


class Endpoint(NamedTuple):
    """One address of a listener. `listener` is the listener's name in capitals. A `host` of None means all addresses of
    the machine."""

    listener: str
    security_protocol: str
    host: str | None
    port: int

    def __str__(self) -> str:
        host = self.host or ""
        return f"{self.listener}://[{host}]:{self.port}" if ":" in host else f"{self.listener}://{host}:{self.port}"


def parse_endpoints(
    key: str, entries: Iterable[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Endpoint, ...]:
    """Parses the endpoints of `listeners` or `advertised.listeners`. Raises ConfigError, which names `key`.

    Names must be different. With `distinct_ports`, ports other than 0 must also be different. As the only exception,
    one IPv4 and one IPv6 address may share a port.
    """
    made = tuple(_parse_endpoint(key, entry, protocols) for entry in entries)
    text = ",".join(map(str, made))
    if len({endpoint.listener for endpoint in made}) != len(made):
        raise ConfigError(key, text, "each listener must have a different name")
    if distinct_ports:
        _check_ports(key, text, made)
    return made


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parses listener.security.protocol.map: `NAME:PROTOCOL,...`, with names in capitals. Raises ConfigError."""
    protocols: dict[str, str] = {}
    for entry in text.split(",") if text else ():
        name, colon, protocol = entry.strip().rpartition(":")
        if not colon or not name.strip():
            raise ConfigError(_PROTOCOL_MAP, text, f"entry {entry.strip()!r} must be NAME:PROTOCOL")
        protocol = protocol.strip().upper()
        if protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                _PROTOCOL_MAP,
                text,
                f"{protocol} is not a security protocol; allowed are {', '.join(SECURITY_PROTOCOLS)}",
            )
        protocols[name.strip().upper()] = protocol
    return protocols


def with_controller_listeners(
    protocols: dict[str, str], listeners: Collection[str], controller_names: Collection[str]
) -> dict[str, str]:
    """Returns the default map with the controller listeners. They get PLAINTEXT, unless any listener is named after
    another security protocol (KIP-718)."""
    names = {entry.partition(":")[0].upper() for entry in listeners} | set(controller_names)
    if names.intersection(SECURITY_PROTOCOLS[1:]):
        return protocols
    return protocols | {name: PLAINTEXT for name in controller_names if name != PLAINTEXT}


def _parse_endpoint(key: str, entry: str, protocols: Mapping[str, str]) -> Endpoint:
    name, slashes, address = entry.partition("://")
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not slashes or not colon or not is_host(host):
        raise ConfigError(key, entry, "must be NAME://host:port entries, separated by commas")
    listener = name.strip().upper()
    if listener not in protocols:
        raise ConfigError(
            key, entry, f"no security protocol is defined for listener {listener}: add it to {_PROTOCOL_MAP}"
        )
    try:
        return Endpoint(listener, protocols[listener], host or None, parse_port(port, entry))
    except AddressError as bad:
        raise ConfigError(key, entry, str(bad)) from None


def _check_ports(key: str, text: str, endpoints: Iterable[Endpoint]) -> None:
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and sorted(_family(endpoint.host) for endpoint in sharing) != [4, 6]:
            raise ConfigError(
                key,
                text,
                f"each listener must have its own port, but {port} is used twice; only one IPv4 and one IPv6 "
                "address may share a port",
            )


def _family(host: str | None) -> int:
    """Returns 4 or 6 for an IP address, and 0 for a name or the wildcard address."""
    for number, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
        try:
            socket.inet_pton(family, host or "")
        except OSError:
            continue
        return number
    return 0
