"""The ports that tests and demos choose."""

from __future__ import annotations

import socket

import pytest

from kafkacore.runtime import ports


def test_port_is_chosen_once_until_all_were_chosen() -> None:
    first, second = ports.free_ports(100), ports.free_ports(100)
    assert len({*first, *second}) == 200
    assert set(first) | set(second) <= set(ports.PORTS)


def test_port_is_left_out_when_somebody_listens_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = ports.free_ports(2)
    monkeypatch.setattr(ports, "_NEXT_PORTS", iter([taken, free]))
    with socket.create_server(("127.0.0.1", taken)):
        assert ports.free_ports(1) == [free]


def test_error_names_the_host_when_too_few_ports_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_NEXT_PORTS", iter(ports.free_ports(1)))
    with pytest.raises(OSError, match=r"host 127\.0\.0\.1 has only 1 of 2 free ports"):
        ports.free_ports(2)
