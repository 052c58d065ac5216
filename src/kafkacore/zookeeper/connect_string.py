"""Parses `zookeeper.connect`: the servers, and the path (chroot) below which a cluster's znodes are."""

from __future__ import annotations

import re
from typing import Final

from kafkacore.zookeeper import paths

DEFAULT_PORT: Final = 2181
_SERVER: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]/\s]+))(?::(?P<port>[0-9]{1,5}))?")


def parse_connect_string(text: str) -> tuple[list[tuple[str, int]], str]:
    """Returns the host and port of each server, and the chroot, which is '' or an absolute path. Raises ValueError."""
    named, slash, rest = text.partition("/")
    chroot = "" if rest.strip("/") == "" else f"{slash}{rest}"
    if chroot:
        paths.check(chroot)
    servers = [_server(each.strip(), text) for each in named.split(",") if each.strip()]
    if not servers:
        raise ValueError(f"zookeeper.connect names no server: {text!r}")
    return servers, chroot


def _server(text: str, whole: str) -> tuple[str, int]:
    match = _SERVER.fullmatch(text)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65_536:
        raise ValueError(f"zookeeper.connect must look like host:port,host:port/chroot, but {text!r} is in {whole!r}")
    return match["six"] or match["host"], port
