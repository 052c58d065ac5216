"""Detects clusters in ZooKeeper mode that this broker must not serve, because they have ACLs."""

from __future__ import annotations

from kafkacore.config import BrokerConfig
from kafkacore.metadata.records import MetadataError
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.client import ZooKeeperClient
from kafkacore.zookeeper.operations import Code, GetChildren, ZooKeeperError


async def check_acls(config: BrokerConfig, client: ZooKeeperClient) -> None:
    """Raises MetadataError if the cluster has ACLs, which this release does not enforce. Apache Kafka keeps the ACLs of
    a resource in `/kafka-acl/TYPE/NAME`, or in `/kafka-acl-extended/PATTERN/TYPE/NAME`."""
    if config.ignore_acls:
        return
    found = await _below(client, paths.ACL, 2) + await _below(client, paths.EXTENDED_ACL, 3)
    if found:
        raise MetadataError(
            f"the cluster has ACLs for {len(found)} resource(s), such as {found[0]}, but this node does not enforce "
            "them: every client could do everything here. Remove them with kafka-acls, or set ignore.acls=true"
        )


async def _below(client: ZooKeeperClient, root: str, depth: int) -> list[str]:
    """Returns the paths of the znodes that are `depth` levels below `root`."""
    found = [root]
    for _ in range(depth):
        listed = await client.read([GetChildren(path) for path in found])
        for path, result in zip(found, listed, strict=True):
            if result.code not in (Code.OK, Code.NO_NODE):
                raise ZooKeeperError(result.code, path)
        found = [
            f"{path}/{name}"
            for path, result in zip(found, listed, strict=True)
            if result.is_ok
            for name in result.value[0]
        ]
    return found
