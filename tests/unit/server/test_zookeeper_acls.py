"""A broker in ZooKeeper mode does not serve a cluster with ACLs, because it does not enforce them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacore.config import BrokerConfig
from kafkacore.metadata.records import MetadataError
from kafkacore.server.zookeeper.refused_acls import check_acls
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.operations import Create
from simulated_zookeepers import run_story

CONFIG = {"zookeeper.connect": "z:2181", "broker.id": "1", "log.dirs": "/nowhere"}
# Apache Kafka's authorizer creates the znodes of the types even if there is no ACL.
TYPES = ["/kafka-acl", "/kafka-acl/Topic", "/kafka-acl-extended", "/kafka-acl-extended/prefixed"]
TYPES += ["/kafka-acl-extended/prefixed/Topic"]


@pytest.mark.parametrize(
    ("znodes", "named"),
    [
        ([], None),
        (TYPES, None),
        ([*TYPES, paths.acl("Topic", "orders")], "/kafka-acl/Topic/orders"),
        ([*TYPES, paths.acl("Topic", "o", "prefixed")], "/kafka-acl-extended/prefixed/Topic/o"),
    ],
)
def test_start_is_refused_when_the_cluster_has_acls(znodes: list[str], named: str | None) -> None:
    async def story(world: Any) -> None:
        client = await world.client()
        await client.submit([Create(path, b"{}") for path in znodes])
        if named is None:
            await check_acls(BrokerConfig(CONFIG), client)
        else:
            with pytest.raises(MetadataError, match=f"ACLs for 1 resource.*{named}.*ignore.acls=true"):
                await check_acls(BrokerConfig(CONFIG), client)
        await check_acls(BrokerConfig(CONFIG | {"ignore.acls": "true"}), client)

    run_story(story)
