"""`kafkacore metadata-quorum describe | add-controller | remove-controller`, as kafka-metadata-quorum.sh (KIP-853)."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from kafkacore.config import BrokerConfig
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.uuid import Uuid
from kafkacore.storage import meta_properties
from kafkacore.tools.admin import Admin, AdminError, add_endpoints, check, run_admin

DESCRIPTION: Final = "Describes the quorum of controllers, and changes which controllers vote in it."
METADATA_TOPIC: Final = "__cluster_metadata"
COLUMNS: Final = (
    "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status",
)  # fmt: skip
CHANGE_TIMEOUT_MS: Final = 60_000
NO_DIRECTORY: Final = Uuid(bytes(16))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_endpoints(parser)
    parser.add_argument(
        "--command-config", metavar="FILE", help="for add-controller: the server.properties of the new controller"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    describe = commands.add_parser("describe", help="describe the quorum")
    form = describe.add_mutually_exclusive_group(required=True)
    form.add_argument("--status", action="store_true", help="show a summary: leader, epoch, lag, voters and observers")
    form.add_argument("--replication", action="store_true", help="show how far each voter and observer has fetched")
    describe.add_argument("--human-readable", action="store_true", help="with --replication: show times as 'N ms ago'")
    adding = commands.add_parser("add-controller", help="make a running controller a voter")
    adding.add_argument("--dry-run", action="store_true", help="only print what would be done")
    removing = commands.add_parser("remove-controller", help="make a voter an observer")
    removing.add_argument("--controller-id", "-i", type=int, required=True, metavar="ID", help="its node.id")
    removing.add_argument("--controller-directory-id", "-d", required=True, metavar="UUID", help="its directory id")
    removing.add_argument("--dry-run", action="store_true", help="only print what would be done")


def run(arguments: argparse.Namespace) -> int:
    try:
        match arguments.command:
            case "describe":
                _describe(arguments)
            case "add-controller":
                _add_controller(arguments)
            case "remove-controller":
                _remove_controller(arguments)
    except AdminError as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    return 0


def _describe(arguments: argparse.Namespace) -> None:
    if arguments.human_readable and not arguments.replication:
        raise AdminError("--human-readable needs --replication")
    cluster_id, quorum = run_admin(arguments, _ask_quorum)
    if arguments.status:
        print("\n".join(_status(cluster_id, quorum)))
    else:
        print("\n".join(_table(COLUMNS, _replication(quorum.topics[0].partitions[0], arguments.human_readable))))


async def _ask_quorum(admin: Admin) -> tuple[str, Any]:
    request_class = apis.request_class(ApiKey.DESCRIBE_QUORUM)
    partition = request_class.PartitionData(partition_index=0)
    request = request_class(topics=[request_class.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])
    cluster = await admin.describe_cluster()
    answer = await admin.ask_controller(request, _quorum_error)
    check(_quorum_error(answer), answer.error_message)
    return cluster.cluster_id, answer


def _quorum_error(answer: Any) -> int:
    return int(answer.error_code or answer.topics[0].partitions[0].error_code)


def _status(cluster_id: str, quorum: Any) -> list[str]:
    partition = quorum.topics[0].partitions[0]
    leader = _leader(partition)
    slowest = min(partition.current_voters, key=lambda voter: voter.log_end_offset)
    lag_ms = 0
    if slowest is not leader:
        known = leader.last_caught_up_timestamp >= 0 and slowest.last_caught_up_timestamp >= 0
        lag_ms = leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp if known else -1
    rows = {
        "ClusterId": cluster_id,
        "LeaderId": partition.leader_id,
        "LeaderEpoch": partition.leader_epoch,
        "HighWatermark": partition.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _replicas(quorum, partition.current_voters),
        "CurrentObservers": _replicas(quorum, partition.observers),
    }
    return [f"{name + ':':<24}{value}" for name, value in rows.items()]


def _leader(partition: Any) -> Any:
    for voter in partition.current_voters:
        if voter.replica_id == partition.leader_id:
            return voter
    raise AdminError(f"the leader, node {partition.leader_id}, is not among the voters")


def _replicas(quorum: Any, replicas: list[Any]) -> str:
    listeners = {node.node_id: node.listeners for node in quorum.nodes}
    shown = []
    for each in replicas:
        directory = "null" if each.replica_directory_id == NO_DIRECTORY else f'"{each.replica_directory_id}"'
        endpoints = [f'"{one.name}://{one.host}:{one.port}"' for one in listeners.get(each.replica_id, ())]
        where = f', "endpoints": [{", ".join(endpoints)}]' if endpoints else ""
        shown.append(f'{{"id": {each.replica_id}, "directoryId": {directory}{where}}}')
    return f"[{', '.join(shown)}]"


def _replication(partition: Any, human_readable: bool) -> list[list[str]]:
    leader = _leader(partition)
    followers = [voter for voter in partition.current_voters if voter is not leader]
    groups = (("Leader", [leader]), ("Follower", followers), ("Observer", partition.observers))
    now_ms = time.time_ns() // 1_000_000

    def moment(timestamp_ms: int) -> str:
        return f"{max(now_ms - timestamp_ms, 0)} ms ago" if human_readable and timestamp_ms >= 0 else str(timestamp_ms)

    return [
        [
            str(each.replica_id),
            str(each.replica_directory_id),
            str(each.log_end_offset),
            str(leader.log_end_offset - each.log_end_offset),
            moment(each.last_fetch_timestamp),
            moment(each.last_caught_up_timestamp),
            status,
        ]
        for status, replicas in groups
        for each in replicas
    ]


def _table(header: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    """Returns the lines of a table. Columns are as wide as their widest cell, and a tab follows each cell, as in
    Kafka's tools."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)]


def _add_controller(arguments: argparse.Namespace) -> None:
    """Makes the controller of this machine a voter. The controller's configuration and its log directory identify
    it."""
    if not arguments.command_config:
        raise AdminError("add-controller needs --command-config FILE, the server.properties of the new controller")
    config = BrokerConfig.load(arguments.command_config)
    if "controller" not in config.process_roles:
        raise AdminError(f"{arguments.command_config}: process.roles does not contain 'controller'")
    properties = meta_properties.read(config.metadata_log_dir)
    if properties is None or properties.directory_id is None:
        raise AdminError(f"{config.metadata_log_dir} is not formatted: run kafkacore storage format first")
    listeners = [
        (each.listener, each.host or "localhost", each.port) for each in config.advertised_controller_listeners
    ]
    shown = ", ".join(f"{name}://{host}:{port}" for name, host, port in listeners)
    what = f"controller {config.node_id} with directory id {properties.directory_id} and endpoints: {shown}"
    if arguments.dry_run:
        print(f"DRY RUN of adding {what}")
        return
    request_class = apis.request_class(ApiKey.ADD_RAFT_VOTER)
    request = request_class(
        cluster_id=None,
        timeout_ms=CHANGE_TIMEOUT_MS,
        voter_id=config.node_id,
        voter_directory_id=properties.directory_id,
        listeners=[request_class.Listener(name=name, host=host, port=port) for name, host, port in listeners],
    )
    _change(arguments, request)
    print(f"Added {what}")


def _remove_controller(arguments: argparse.Namespace) -> None:
    try:
        directory_id = Uuid.parse(arguments.controller_directory_id)
    except ValueError as error:
        raise AdminError(f"--controller-directory-id {arguments.controller_directory_id!r}: {error}") from None
    what = f"KRaft controller {arguments.controller_id} with directory id {directory_id}"
    if arguments.dry_run:
        print(f"DRY RUN of removing  {what}")  # with two spaces, as in Kafka
        return
    request = apis.request_class(ApiKey.REMOVE_RAFT_VOTER)(
        cluster_id=None, voter_id=arguments.controller_id, voter_directory_id=directory_id
    )
    _change(arguments, request)
    print(f"Removed  {what}")


def _change(arguments: argparse.Namespace, request: Any) -> None:
    answer = run_admin(arguments, lambda admin: admin.ask_controller(request, lambda answer: int(answer.error_code)))
    check(answer.error_code, answer.error_message)
