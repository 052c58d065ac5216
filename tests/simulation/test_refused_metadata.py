"""A running broker stops at the first metadata that it must not serve."""

from __future__ import annotations

import pytest

from kafkacore.controller.quorum.decisions import Decision
from kafkacore.metadata.records import MetadataError
from kafkacore.protocol.messages import AccessControlEntryRecord, MetadataRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.simulation.cluster import SimulatedCluster
from kafkacore.simulation.node import State
from seeds import SEED
from simulated_clusters import elected

SESSION = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
STRICT, IGNORANT = 2, 3


def test_running_broker_stops_at_the_first_acl_unless_it_ignores_acls() -> None:
    """A controller of Apache Kafka writes such a record when somebody adds an ACL. From then on a broker that enforces
    no ACLs would let every client do everything."""
    acl = AccessControlEntryRecord(
        id=Uuid(b"a" * 16), resource_type=2, resource_name="t", pattern_type=3, principal="User:ann", host="*",
        operation=3, permission_type=3,
    )  # fmt: skip
    ignorant = {IGNORANT: {"ignore.acls": "true"}}
    with SimulatedCluster(SEED, controllers=1, brokers=2, configs=SESSION, of_node=ignorant) as cluster:
        cluster.start()
        server = elected(cluster).server
        assert server is not None and server.controller_server is not None
        quorum = server.controller_server.quorum
        cluster.ask(STRICT, MetadataRequest(topics=[]))
        server.controller_server.plane.loop.call(quorum._append, Decision([acl], None))
        cluster.run_until(lambda: cluster[STRICT].state is State.FAILED, 30, "the end of the broker that has no ACLs")
        assert isinstance(cluster[STRICT].error, MetadataError)
        assert "has 1 ACL(s), but this node does not enforce them" in str(cluster[STRICT].error)
        with pytest.raises((OSError, TimeoutError)):
            cluster.ask(STRICT, MetadataRequest(topics=[]), 2)
        cluster.run_until(lambda: not quorum.image.is_active(STRICT), 30, "the fencing of that broker")
        assert cluster[IGNORANT].state is State.RUNNING
        assert [each.node_id for each in cluster.ask(IGNORANT, MetadataRequest(topics=[])).brokers] == [IGNORANT]
