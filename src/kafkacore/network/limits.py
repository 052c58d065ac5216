"""The limits of a plane: by the keys of server.properties, and of our own where Kafka has no key."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final, NamedTuple

CONTROL_PLANE_QUEUE: Final = 20  # KIP-291: the ring of control.plane.listener.name
MEMORY_SHARE: Final = 4  # queued.max.request.bytes=-1 still means: a quarter of the memory
_UNLIMITED: Final = 0x7FFFFFFF


class PlaneLimits(NamedTuple):
    """Bytes, milliseconds, counts. The defaults are Kafka's where it has the key."""

    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    socket_request_max_bytes: int = 104857600
    connections_max_idle_ms: int = 600000
    max_connections: int = _UNLIMITED
    max_connections_per_ip: int = _UNLIMITED
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = ()
    max_connection_creation_rate: int = _UNLIMITED
    # Name, max.connections and max.connection.creation.rate of each listener that has its own, beside the plane's.
    of_listeners: tuple[tuple[str, int, int], ...] = ()
    exempt_listener: str = ""  # KIP-402: the plane's two limits do not hold for the brokers' own listener
    socket_listen_backlog_size: int = 50
    # Kafka's default of 100 KiB throttles a connection. Unless the key is set, the system grows buffers by need.
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
    # Not Kafka's.
    slow_request_bytes_per_second: int = 1024  # the least pace of a request while others wait for memory
    slow_frame_ms: int = 30000  # the pace is looked at that often
    half_closed_ms: int = 10000  # how long answers still go to a peer that has closed its sending side
    answers_depth: int = 64  # answers that one connection may await
    answers_bytes: int = 8 << 20  # complete answers of one connection that wait for its socket
    turn_frames: int = 16  # a connection's share of a processor's turn
    turn_bytes: int = 1 << 20

    @property
    def memory_bytes(self) -> int:
        """How much memory all requests of the plane may occupy: never less than one of them."""
        if self.queued_max_request_bytes > 0:
            return max(self.queued_max_request_bytes, self.socket_request_max_bytes)
        return max(physical_memory_bytes() // MEMORY_SHARE, self.socket_request_max_bytes)

    def per_second(self) -> int:
        """Connections that all listeners may take in a second; 0: any number."""
        return _per_second(self.max_connection_creation_rate)

    def own(self, listener: str) -> tuple[int, int]:
        """How many connections one listener may have, and take in a second."""
        found = ((most, _per_second(rate)) for name, most, rate in self.of_listeners if name == listener)
        return next(found, (self.max_connections, self.per_second()))

    def native(self) -> dict[str, int]:
        """As `NativePlane` takes them."""
        return {
            "max_request_bytes": self.socket_request_max_bytes,
            # In Kafka a negative time has no end.
            "idle_ms": self.connections_max_idle_ms if self.connections_max_idle_ms > 0 else 1 << 50,
            "slow_frame_ms": self.slow_frame_ms,
            "slow_frame_bytes": self.slow_request_bytes_per_second * self.slow_frame_ms // 1000,
            "half_closed_ms": self.half_closed_ms,
            "max_connections": self.max_connections,
            "max_connections_per_ip": self.max_connections_per_ip,
            "answers_depth": self.answers_depth,
            "answers_bytes": self.answers_bytes,
            "turn_frames": self.turn_frames,
            "turn_bytes": self.turn_bytes,
            "send_buffer_bytes": self.socket_send_buffer_bytes,
            "receive_buffer_bytes": self.socket_receive_buffer_bytes,
        }


def _per_second(rate: int) -> int:
    return rate if rate < _UNLIMITED else 0


def limits_from(config: Any) -> PlaneLimits:
    """From a BrokerConfig."""
    several = len(config.data_plane_listeners) > 1
    return PlaneLimits(
        queued_max_requests=config.queued_max_requests,
        queued_max_request_bytes=config.queued_max_request_bytes,
        socket_request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        slow_request_bytes_per_second=config.slow_request_bytes_per_second,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=tuple(sorted(config.max_connections_per_ip_overrides.items())),
        max_connection_creation_rate=config.max_connection_creation_rate,
        of_listeners=tuple(
            (
                each.listener,
                config.of_listener(each.listener, "max.connections"),
                config.of_listener(each.listener, "max.connection.creation.rate"),
            )
            for each in config.listeners
            if config.has_own_limits(each.listener)
        ),
        exempt_listener=config.inter_broker_listener_name if several else "",
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
    )


@cache
def physical_memory_bytes() -> int:
    """The memory of the machine, or of the control group where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as limit:
            text = limit.read().strip()
    except OSError:
        return total
    return min(total, int(text)) if text.isdigit() else total
