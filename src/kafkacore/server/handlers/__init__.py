"""The handlers: one module for each API. The module's `handle(context, call, request)` returns the response, a
coroutine, or a generator that yields to other requests while it works (`runtime.slices`).

The tables list the APIs of each kind of listener. A module is imported when the first request for its API arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkacore.protocol.apis import ApiKey

_HERE: Final = "kafkacore.server.handlers"

BROKER: Final[dict[int, str]] = {
    ApiKey.PRODUCE: f"{_HERE}.broker.produce",
    ApiKey.FETCH: f"{_HERE}.broker.fetch",
    ApiKey.LIST_OFFSETS: f"{_HERE}.broker.list_offsets",
    ApiKey.METADATA: f"{_HERE}.broker.metadata",
    ApiKey.OFFSET_COMMIT: f"{_HERE}.broker.offset_commit",
    ApiKey.OFFSET_FETCH: f"{_HERE}.broker.offset_fetch",
    ApiKey.FIND_COORDINATOR: f"{_HERE}.broker.find_coordinator",
    ApiKey.JOIN_GROUP: f"{_HERE}.broker.join_group",
    ApiKey.HEARTBEAT: f"{_HERE}.broker.heartbeat",
    ApiKey.LEAVE_GROUP: f"{_HERE}.broker.leave_group",
    ApiKey.SYNC_GROUP: f"{_HERE}.broker.sync_group",
    ApiKey.DESCRIBE_GROUPS: f"{_HERE}.broker.describe_groups",
    ApiKey.LIST_GROUPS: f"{_HERE}.broker.list_groups",
    ApiKey.API_VERSIONS: f"{_HERE}.api_versions",
    ApiKey.CREATE_TOPICS: f"{_HERE}.broker.forward",
    ApiKey.DELETE_TOPICS: f"{_HERE}.broker.forward",
    ApiKey.DELETE_RECORDS: f"{_HERE}.broker.delete_records",
    ApiKey.INIT_PRODUCER_ID: f"{_HERE}.broker.init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: f"{_HERE}.broker.offset_for_leader_epoch",
    ApiKey.DESCRIBE_CONFIGS: f"{_HERE}.describe_configs",
    ApiKey.ALTER_CONFIGS: f"{_HERE}.broker.alter_configs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: f"{_HERE}.broker.alter_replica_log_dirs",
    ApiKey.DESCRIBE_LOG_DIRS: f"{_HERE}.broker.describe_log_dirs",
    ApiKey.CREATE_PARTITIONS: f"{_HERE}.broker.forward",
    ApiKey.ELECT_LEADERS: f"{_HERE}.broker.forward",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: f"{_HERE}.broker.alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: f"{_HERE}.broker.forward",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: f"{_HERE}.broker.forward",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: f"{_HERE}.broker.describe_client_quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: f"{_HERE}.broker.forward",
    ApiKey.DELETE_GROUPS: f"{_HERE}.broker.delete_groups",
    ApiKey.OFFSET_DELETE: f"{_HERE}.broker.offset_delete",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: f"{_HERE}.broker.describe_user_scram_credentials",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: f"{_HERE}.broker.forward",
    ApiKey.DESCRIBE_QUORUM: f"{_HERE}.broker.forward",
    ApiKey.UPDATE_FEATURES: f"{_HERE}.broker.forward",
    ApiKey.DESCRIBE_CLUSTER: f"{_HERE}.broker.describe_cluster",
    ApiKey.UNREGISTER_BROKER: f"{_HERE}.broker.forward",
    ApiKey.WRITE_TXN_MARKERS: f"{_HERE}.broker.write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: f"{_HERE}.broker.txn_offset_commit",
    ApiKey.DESCRIBE_PRODUCERS: f"{_HERE}.broker.describe_producers",
    ApiKey.DESCRIBE_TRANSACTIONS: f"{_HERE}.broker.transactions",
    ApiKey.LIST_TRANSACTIONS: f"{_HERE}.broker.transactions",
    ApiKey.LIST_CONFIG_RESOURCES: f"{_HERE}.broker.list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: f"{_HERE}.broker.describe_topic_partitions",
    ApiKey.ADD_RAFT_VOTER: f"{_HERE}.broker.forward",
    ApiKey.REMOVE_RAFT_VOTER: f"{_HERE}.broker.forward",
}

_ZOOKEEPER: Final[dict[int, str]] = {
    ApiKey.LEADER_AND_ISR: f"{_HERE}.zookeeper.from_controller",
    ApiKey.STOP_REPLICA: f"{_HERE}.zookeeper.from_controller",
    ApiKey.UPDATE_METADATA: f"{_HERE}.zookeeper.from_controller",
    ApiKey.CONTROLLED_SHUTDOWN: f"{_HERE}.zookeeper.to_controller",
    ApiKey.ALTER_PARTITION: f"{_HERE}.zookeeper.to_controller",
    ApiKey.ALLOCATE_PRODUCER_IDS: f"{_HERE}.zookeeper.to_controller",
    ApiKey.METADATA: f"{_HERE}.zookeeper.metadata",
}
_KRAFT_ONLY: Final = frozenset({
    ApiKey.DESCRIBE_QUORUM, ApiKey.UNREGISTER_BROKER, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.LIST_CONFIG_RESOURCES, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
})  # fmt: skip
ZOOKEEPER_BROKER: Final[Mapping[int, str]] = {
    key: module for key, module in (BROKER | _ZOOKEEPER).items() if key not in _KRAFT_ONLY
}
# The listener that control.plane.listener.name names serves these APIs (KIP-291): the controller's requests to brokers,
# and the requests that brokers of Apache Kafka 3.9 send to the controller.
CONTROL_PLANE: Final[dict[int, str]] = {
    key: ZOOKEEPER_BROKER[key]
    for key in (
        ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.API_VERSIONS,
    )
}  # fmt: skip

CONTROLLER: Final[Mapping[int, str]] = {
    ApiKey.FETCH: f"{_HERE}.controller.raft",
    ApiKey.API_VERSIONS: f"{_HERE}.api_versions",
    ApiKey.CREATE_TOPICS: f"{_HERE}.controller.decisions",
    ApiKey.DELETE_TOPICS: f"{_HERE}.controller.decisions",
    ApiKey.DESCRIBE_CONFIGS: f"{_HERE}.describe_configs",
    ApiKey.ALTER_CONFIGS: f"{_HERE}.controller.decisions",
    ApiKey.CREATE_PARTITIONS: f"{_HERE}.controller.decisions",
    ApiKey.ELECT_LEADERS: f"{_HERE}.controller.decisions",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: f"{_HERE}.controller.incremental_alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: f"{_HERE}.controller.decisions",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: f"{_HERE}.controller.decisions",
    ApiKey.ALTER_CLIENT_QUOTAS: f"{_HERE}.controller.decisions",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: f"{_HERE}.controller.decisions",
    ApiKey.VOTE: f"{_HERE}.controller.raft",
    ApiKey.BEGIN_QUORUM_EPOCH: f"{_HERE}.controller.raft",
    ApiKey.END_QUORUM_EPOCH: f"{_HERE}.controller.raft",
    ApiKey.DESCRIBE_QUORUM: f"{_HERE}.controller.describe_quorum",
    ApiKey.UPDATE_FEATURES: f"{_HERE}.controller.decisions",
    ApiKey.ENVELOPE: f"{_HERE}.controller.envelope",
    ApiKey.ALTER_PARTITION: f"{_HERE}.controller.decisions",
    ApiKey.FETCH_SNAPSHOT: f"{_HERE}.controller.raft",
    ApiKey.DESCRIBE_CLUSTER: f"{_HERE}.controller.describe_cluster",
    ApiKey.BROKER_REGISTRATION: f"{_HERE}.controller.decisions",
    ApiKey.BROKER_HEARTBEAT: f"{_HERE}.controller.decisions",
    ApiKey.UNREGISTER_BROKER: f"{_HERE}.controller.decisions",
    ApiKey.ALLOCATE_PRODUCER_IDS: f"{_HERE}.controller.decisions",
    ApiKey.CONTROLLER_REGISTRATION: f"{_HERE}.controller.decisions",
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: f"{_HERE}.controller.decisions",
    ApiKey.ADD_RAFT_VOTER: f"{_HERE}.controller.raft",
    ApiKey.REMOVE_RAFT_VOTER: f"{_HERE}.controller.raft",
    ApiKey.UPDATE_RAFT_VOTER: f"{_HERE}.controller.raft",
}

TABLES: Final[Mapping[str, Mapping[int, str]]] = {
    "broker": BROKER, "controller": CONTROLLER, "zkBroker": ZOOKEEPER_BROKER,
}  # fmt: skip
