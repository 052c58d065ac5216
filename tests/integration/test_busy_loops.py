"""A broker keeps its registration in the cluster, even while the handlers of its data plane are busy for a long
time."""

from __future__ import annotations

import threading

import pytest

from kafkacore.testing import Broker

pytestmark = pytest.mark.timeout(120)

SESSION_MS, INTERVAL_MS = 600, 100
SESSIONS = 4


def test_broker_is_not_fenced_when_its_data_loop_is_busy_for_sessions() -> None:
    keys = {"broker.session.timeout.ms": SESSION_MS, "broker.heartbeat.interval.ms": INTERVAL_MS}
    with Broker(topics=["t"], configs=keys) as broker:
        controller = broker.node.controller_server
        assert controller is not None
        quorum, data_loop = controller.quorum, broker.node.broker.plane.loop
        epoch = broker.log("t").leader_epoch
        heard, enough, held = [0], threading.Event(), threading.Event()
        liveness = quorum._liveness
        hear = liveness.heard

        def counted(broker_id: int, epoch: int, now_ms: int) -> None:
            heard[0] += 1
            if heard[0] >= SESSIONS * SESSION_MS / INTERVAL_MS:
                enough.set()
            hear(broker_id, epoch, now_ms)

        liveness.heard = counted  # type: ignore[method-assign]
        data_loop.call(held.wait)
        try:
            assert enough.wait(60), f"only {heard[0]} heartbeats came"
            registered = quorum.image.brokers[broker.node.config.node_id]
            assert registered.active and not registered.fenced
        finally:
            held.set()
        broker.produce("t", "x")
        assert broker.log("t").leader_epoch == epoch
