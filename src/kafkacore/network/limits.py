"""The limits of a plane (a group of listeners, see plane.py). They come from the keys of server.properties. Some of
these keys are kafkacore's own, because Kafka has no such limit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

CONTROL_PLANE_QUEUE: Final = 20  # capacity of the request ring of control.plane.listener.name (KIP-291)
MEMORY_SHARE: Final = 4  # with queued.max.request.bytes=-1, requests may use one quarter of the machine's memory
_UNLIMITED: Final = 0x7FFFFFFF


class PlaneLimits(NamedTuple):
    """The limits of a plane, in bytes, milliseconds and counts. The defaults are Kafka's if Kafka has the key."""

    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    socket_request_max_bytes: int = 104857600
    connections_max_idle_ms: int = 600000
    max_connections: int = _UNLIMITED
    max_connections_per_ip: int = _UNLIMITED
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = ()
    max_connection_creation_rate: int = _UNLIMITED
    # For each listener that has limits of its own in addition to the plane's: its name, max.connections and
    # max.connection.creation.rate.
    of_listeners: tuple[tuple[str, int, int], ...] = ()
    # The plane's max.connections and max.connection.creation.rate do not apply to this listener, which is the
    # inter-broker listener (KIP-402).
    exempt_listener: str = ""
    socket_listen_backlog_size: int = 50
    # Kafka's default of 100 KiB slows a connection down. Unless the key is set, the operating system adjusts the
    # buffers as needed.
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
    # Kafka has none of the following limits.
    sampled_request_log_every: int = 0  # one request out of this number is sampled; 0 turns sampling off
    # The minimum speed at which a request must arrive while other requests wait for memory.
    slow_request_bytes_per_second: int = 1024
    slow_frame_ms: int = 30000  # the interval at which this speed is checked
    half_closed_ms: int = 10000  # for this long, a peer that has closed its sending side still gets responses
    answers_depth: int = 64  # the number of responses for which one connection may wait
    answers_bytes: int = 8 << 20  # the limit for the bytes of complete responses that wait for one connection's socket
    # The number of frames that a processor reads from one connection before it reads from the next one.
    turn_frames: int = 16
    turn_bytes: int = 1 << 20

    @property
    def memory_bytes(self) -> int:
        """The memory that all requests of the plane can use. It is never less than the size of the largest request."""
        if self.queued_max_request_bytes > 0:
            return max(self.queued_max_request_bytes, self.socket_request_max_bytes)
        return max(physical_memory_bytes() // MEMORY_SHARE, self.socket_request_max_bytes)

    def per_second(self) -> int:
        """The number of connections that all listeners together can accept per second. 0 means no limit."""
        return _per_second(self.max_connection_creation_rate)

    def own(self, listener: str) -> tuple[int, int]:
        """Returns the number of connections that one listener can have, and the number that it can accept per
        second."""
        found = ((most, _per_second(rate)) for name, most, rate in self.of_listeners if name == listener)
        return next(found, (self.max_connections, self.per_second()))

    def native(self) -> dict[str, int]:
        """Returns the limits as arguments of `NativePlane`, without the arguments in OF_THE_PLANE."""
        made = {
            limit.native: getattr(self, name)
            for name, limit in LIMITS.items()
            if limit.native and limit.native not in OF_THE_PLANE
        }
        # In Kafka, a negative time means no limit.
        made["idle_ms"] = self.connections_max_idle_ms if self.connections_max_idle_ms > 0 else 1 << 50
        made["slow_frame_bytes"] = self.slow_request_bytes_per_second * self.slow_frame_ms // 1000
        return made


class Limit(NamedTuple):
    """The key that sets a field of PlaneLimits, and the code that applies the limit."""

    key: str  # the key in server.properties; empty when no key sets it
    native: str  # the argument of NativePlane; empty if Python applies the limit
    unit: str


# Every limit that is a single number, by its field of PlaneLimits.
LIMITS: Final[Mapping[str, Limit]] = {
    "queued_max_requests": Limit("queued.max.requests", "ring_capacity", "requests"),
    "queued_max_request_bytes": Limit("queued.max.request.bytes", "memory_bytes", "bytes"),
    "socket_request_max_bytes": Limit("socket.request.max.bytes", "max_request_bytes", "bytes"),
    "connections_max_idle_ms": Limit("connections.max.idle.ms", "idle_ms", "ms"),
    "max_connections": Limit("max.connections", "max_connections", "connections"),
    "max_connections_per_ip": Limit("max.connections.per.ip", "max_connections_per_ip", "connections"),
    "max_connection_creation_rate": Limit("max.connection.creation.rate", "", "connections per second"),
    "socket_listen_backlog_size": Limit("socket.listen.backlog.size", "", "connections"),
    "socket_send_buffer_bytes": Limit("socket.send.buffer.bytes", "send_buffer_bytes", "bytes"),
    "socket_receive_buffer_bytes": Limit("socket.receive.buffer.bytes", "receive_buffer_bytes", "bytes"),
    "sampled_request_log_every": Limit("sampled.request.log.every", "sample_every", "requests"),
    "slow_request_bytes_per_second": Limit("slow.request.bytes.per.second", "slow_frame_bytes", "bytes per second"),
    "slow_frame_ms": Limit("", "slow_frame_ms", "ms"),
    "half_closed_ms": Limit("", "half_closed_ms", "ms"),
    "answers_depth": Limit("", "answers_depth", "answers"),
    "answers_bytes": Limit("", "answers_bytes", "bytes"),
    "turn_frames": Limit("", "turn_frames", "requests"),
    "turn_bytes": Limit("", "turn_bytes", "bytes"),
}
# The Plane itself passes these two arguments: one depends on the kind of the plane, and the other on the machine.
OF_THE_PLANE: Final = frozenset({"ring_capacity", "memory_bytes"})


def _per_second(rate: int) -> int:
    return rate if rate < _UNLIMITED else 0


def limits_from(config: Any) -> PlaneLimits:
    """Returns the limits that a BrokerConfig sets."""
    several = len(config.data_plane_listeners) > 1
    return PlaneLimits(
        **{name: config.value(limit.key) for name, limit in LIMITS.items() if limit.key},
        max_connections_per_ip_overrides=tuple(sorted(config.max_connections_per_ip_overrides.items())),
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
    )


@cache
def physical_memory_bytes() -> int:
    """Returns the memory of the machine, or the memory limit of the control group if this limit is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as limit:
            text = limit.read().strip()
    except OSError:
        return total
    return min(total, int(text)) if text.isdigit() else total
