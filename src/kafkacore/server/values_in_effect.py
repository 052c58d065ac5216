"""The default values of this node that differ from Kafka's defaults. DescribeConfigs reports these values for keys that
are not set."""

from __future__ import annotations

from collections.abc import Mapping

from kafkacore.network.plane import Plane


def values_in_effect(plane: Plane) -> Mapping[str, str]:
    limits = plane.limits
    return {
        # The number of threads depends on the machine.
        "num.network.threads": str(len(plane.processors)),
        # As in Kafka, -1 means that the operating system chooses the size of the buffers.
        "socket.send.buffer.bytes": str(limits.socket_send_buffer_bytes),
        "socket.receive.buffer.bytes": str(limits.socket_receive_buffer_bytes),
        # The limit is a share of the machine's memory.
        "queued.max.request.bytes": str(limits.memory_bytes),
    }
