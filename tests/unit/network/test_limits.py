"""The limits of a plane (the network layer), which follow from the keys of server.properties."""

from __future__ import annotations

import pytest

from kafkacore.config import BrokerConfig
from kafkacore.network.limits import PlaneLimits, limits_from, physical_memory_bytes
from kafkacore.network.plane import _addresses

SOUND = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
}


def limits(**properties: str) -> PlaneLimits:
    return limits_from(BrokerConfig(SOUND | {name.replace("_", "."): text for name, text in properties.items()}))


def test_defaults_equal_the_defaults_of_the_keys() -> None:
    assert limits() == PlaneLimits()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("queued_max_requests", "7"),
        ("queued_max_request_bytes", "200000000"),
        ("socket_request_max_bytes", "12345"),
        ("connections_max_idle_ms", "4321"),
        ("max_connections", "11"),
        ("max_connections_per_ip", "3"),
        ("max_connection_creation_rate", "20"),
        ("socket_listen_backlog_size", "9"),
        ("socket_send_buffer_bytes", "8192"),
        ("socket_receive_buffer_bytes", "102400"),
    ],
)
def test_key_sets_only_the_limit_of_its_name(name: str, text: str) -> None:
    assert limits(**{name: text}) == PlaneLimits(**{name: int(text)})


def test_override_limits_one_address() -> None:
    told = limits(max_connections_per_ip_overrides="127.0.0.1:2,localhost:5")
    assert told.max_connections_per_ip_overrides == (("127.0.0.1", 2), ("localhost", 5))


def test_memory_without_a_limit_is_a_share_of_the_machine() -> None:
    assert limits(queued_max_request_bytes="200000000").memory_bytes == 200_000_000
    assert 0 < limits(socket_request_max_bytes="1000").memory_bytes < physical_memory_bytes()


def test_negative_idle_time_has_no_end() -> None:
    assert limits(connections_max_idle_ms="-1").native()["idle_ms"] > 10**12


@pytest.mark.parametrize("host", ["a" * 64, "a..b"])
def test_name_that_does_not_resolve_limits_nobody(host: str, caplog: pytest.LogCaptureFixture) -> None:
    assert _addresses(host) == []
    assert "does not resolve" in caplog.text
    assert _addresses("::1") == ["::1"]
