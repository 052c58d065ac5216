"""`kafkacore reassign-partitions`: moves partitions between brokers and between the log directories of a broker, as
kafka-reassign-partitions.sh (KIP-455, KIP-113)."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from kafkacore.controller.common.placement import PlacementError, UsableBroker, place
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.tools import replica_moves
from kafkacore.tools.admin import Admin, AdminError, add_endpoints, check, run_admin
from kafkacore.tools.numbers import whole_number
from kafkacore.tools.reassignment import (
    Move,
    PartitionId,
    Plan,
    listed,
    plan_as_json,
    read_brokers,
    read_plan,
    read_topics,
    text_of,
    throttles_of,
)
from kafkacore.tools.replica_moves import Directories, ReplicaId

DESCRIPTION: Final = "Moves partitions between brokers and log directories, and sets the throttles of such moves."
TIMEOUT_MS: Final = 30_000
NO_THROTTLE: Final = -1
# How long --execute waits for a broker's directories. After that, the plan for a rollback shows "any" for them.
DIRECTORIES_PATIENCE_S: Final = 5.0
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
# Types of ConfigResource, and operations of IncrementalAlterConfigs
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATES: Final = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
EXISTING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
VERIFY_LATER: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_endpoints(parser)
    actions = parser.add_mutually_exclusive_group(required=True)
    for name, summary in (
        ("generate", "propose a plan that spreads topics over brokers; execute nothing"),
        ("execute", "start the plan in --reassignment-json-file"),
        ("verify", "show the progress of the plan; when the plan is complete, remove the throttles"),
        ("cancel", "cancel the reassignments of the plan that are in progress"),
        ("list", "list all reassignments that are in progress"),
    ):
        actions.add_argument(f"--{name}", dest="action", action="store_const", const=name, help=summary)
    parser.add_argument("--reassignment-json-file", metavar="FILE", help="the plan of --execute, --verify, --cancel")
    parser.add_argument("--topics-to-move-json-file", metavar="FILE", help="the topics of --generate")
    parser.add_argument("--broker-list", metavar="ID,...", help="the brokers of --generate")
    parser.add_argument("--disable-rack-aware", action="store_true", help="--generate ignores racks")
    parser.add_argument(
        "--throttle",
        type=whole_number(NO_THROTTLE),
        default=NO_THROTTLE,
        metavar="BYTES",
        help="bytes per second between brokers",
    )
    parser.add_argument(
        "--replica-alter-log-dirs-throttle", type=whole_number(NO_THROTTLE), default=NO_THROTTLE, metavar="BYTES",
        help="bytes per second between the log directories of a broker",
    )  # fmt: skip
    parser.add_argument(
        "--timeout",
        type=whole_number(0),
        default=10_000,
        metavar="MS",
        help="time limit for the start of moves between log directories",
    )
    parser.add_argument("--additional", action="store_true", help="--execute although other moves are in progress")
    parser.add_argument(
        "--preserve-throttles", action="store_true", help="--verify and --cancel do not remove throttles"
    )
    parser.set_defaults(defaults={name: parser.get_default(name) for name in OPTIONS})


NEEDS: Final = {
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "verify": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}
ALLOWS: Final = {
    "generate": ("disable_rack_aware",),
    "execute": ("additional", "throttle", "replica_alter_log_dirs_throttle", "timeout"),
    "verify": ("preserve_throttles",),
    "cancel": ("preserve_throttles", "timeout"),
    "list": (),
}
OPTIONS: Final = tuple(sorted({name for table in (NEEDS, ALLOWS) for names in table.values() for name in names}))


def _check_options(arguments: argparse.Namespace) -> None:
    """Raises AdminError if an option is missing, or has no effect on the action."""
    action = arguments.action
    for needed in NEEDS[action]:
        if getattr(arguments, needed) is None:
            raise AdminError(f"--{action} needs {_spelled(needed)}")
    for name in OPTIONS:
        if name not in (*NEEDS[action], *ALLOWS[action]) and getattr(arguments, name) != arguments.defaults[name]:
            raise AdminError(f"{_spelled(name)} has no effect on --{action}: leave it out")


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def run(arguments: argparse.Namespace) -> int:
    try:
        _check_options(arguments)
        if arguments.bootstrap_controller and arguments.action not in ("cancel", "list"):
            raise AdminError(f"--{arguments.action} needs --bootstrap-server: controllers do not describe topics")
        action = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}
        run_admin(arguments, lambda admin: action[arguments.action](Reassignments(admin), arguments))
    except AdminError as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    return 0


class Reassignments:
    """Sends the requests of this command. Each method raises AdminError."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    async def under_way(self) -> dict[PartitionId, Any]:
        """Returns the reassignments in progress by partition, as the controller lists them."""
        request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
        answer = await self.admin.ask_controller(request, lambda answer: int(answer.error_code))
        check(answer.error_code, answer.error_message)
        return {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}

    async def alter(self, target: dict[PartitionId, list[int] | None]) -> dict[PartitionId, str]:
        """Changes the replicas of partitions. None cancels a reassignment. Returns the controller's error for each
        partition that it refused."""
        made = AlterPartitionReassignmentsRequest
        topics: dict[str, list[Any]] = {}
        for (topic, index), replicas in target.items():
            topics.setdefault(topic, []).append(made.ReassignablePartition(partition_index=index, replicas=replicas))
        request = made(
            timeout_ms=TIMEOUT_MS,
            topics=[made.ReassignableTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        answer = await self.admin.ask_controller(request, lambda answer: int(answer.error_code))
        check(answer.error_code, answer.error_message)
        return {
            (topic.name, each.partition_index): each.error_message or f"error {each.error_code}"
            for topic in answer.responses
            for each in topic.partitions
            if each.error_code
        }

    async def replicas(self, topics: Iterable[str]) -> Plan:
        """Returns the replicas of those topics that exist."""
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(set(topics))]
        answer = await self.admin.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        found: Plan = {}
        for topic in answer.topics:
            if topic.error_code != UNKNOWN_TOPIC_OR_PARTITION:
                check(topic.error_code, f"Topic {topic.name}: {error_of_peer(topic.error_code).message}")
                found |= {(topic.name, each.partition_index): list(each.replica_nodes) for each in topic.partitions}
        return found

    async def configure_topic(self, name: str, settings: Mapping[str, str | None]) -> None:
        """Changes settings of a topic. The value None deletes a setting."""
        answer = await self.admin.ask(_change(TOPIC, name, settings))
        check(answer.responses[0].error_code, answer.responses[0].error_message)

    async def configure_broker(self, broker_id: int, settings: Mapping[str, str | None]) -> None:
        """Changes settings of a broker. The value None deletes a setting. If the broker is not alive, prints a line
        about this and changes nothing."""
        answer = await self.admin.ask_broker(broker_id, _change(BROKER, str(broker_id), settings))
        if answer is None:
            print(f"kafkacore: broker {broker_id} is not alive: its throttles stay unchanged", file=sys.stderr)
            return
        check(answer.responses[0].error_code, answer.responses[0].error_message)


def _change(kind: int, name: str, settings: Mapping[str, str | None]) -> IncrementalAlterConfigsRequest:
    made = IncrementalAlterConfigsRequest
    configs = [
        made.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in settings.items()
    ]
    return made(resources=[made.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)])


async def _list(moves: Reassignments, arguments: argparse.Namespace) -> None:
    found = await moves.under_way()
    if not found:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, each in sorted(found.items()):
        text = f"{text_of(partition)}: replicas: {_ids(each.replicas)}."
        if each.adding_replicas:
            text += f" adding: {_ids(each.adding_replicas)}."
        if each.removing_replicas:
            text += f" removing: {_ids(each.removing_replicas)}."
        print(text)


async def _generate(moves: Reassignments, arguments: argparse.Namespace) -> None:
    topics, brokers = read_topics(arguments.topics_to_move_json_file), read_brokers(arguments.broker_list)
    current = await moves.replicas(topics)
    missing = sorted(set(topics) - {topic for topic, _ in current})
    if missing:
        raise AdminError(f"Topic {missing[0]} not found.")
    nodes = (await moves.admin.describe_cluster()).brokers
    racks = {node.broker_id: None if arguments.disable_rack_aware else node.rack for node in nodes}
    _refuse_unknown(brokers, racks)
    chosen = [UsableBroker(each, racks[each], False) for each in brokers]
    if len({each.rack is None for each in chosen}) > 1:
        raise AdminError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    proposed: Plan = {}
    for name in topics:
        rows = sorted(partition for partition in current if partition[0] == name)
        try:
            placed = place(chosen, len(rows), len(current[rows[0]]), random.Random())
        except PlacementError as error:
            raise AdminError(str(error)) from None
        proposed |= dict(zip(rows, placed, strict=True))
    print(f"Current partition replica assignment\n{plan_as_json(current)}\n")
    print(f"Proposed partition reassignment configuration\n{plan_as_json(proposed)}")


async def _execute(moves: Reassignments, arguments: argparse.Namespace) -> None:
    plan, directories = read_plan(arguments.reassignment_json_file)
    under_way = await moves.under_way()
    if under_way and not arguments.additional:
        raise AdminError(EXISTING)
    known = {node.broker_id for node in (await moves.admin.describe_cluster()).brokers}
    _refuse_unknown({each for replicas in plan.values() for each in replicas}, known)
    found = await moves.replicas(topic for topic, _ in plan)
    if missing := plan.keys() - found.keys():
        raise AdminError(f"Unable to find partition: {', '.join(map(text_of, sorted(missing)))}")
    current = {partition: found[partition] for partition in plan}
    places = await replica_moves.places_of(moves.admin, _replicas_of(current), DIRECTORIES_PATIENCE_S)
    print(f"Current partition replica assignment\n\n{plan_as_json(current, places)}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    if arguments.throttle >= 0 or arguments.replica_alter_log_dirs_throttle >= 0:
        print(VERIFY_LATER)
    if arguments.throttle >= 0:
        await _throttle(moves, under_way, plan, current, arguments.throttle)
    if arguments.replica_alter_log_dirs_throttle >= 0:
        await _throttle_directories(moves, directories, arguments.replica_alter_log_dirs_throttle)
    errors = await moves.alter({partition: list(replicas) for partition, replicas in plan.items()})
    if errors:
        raise AdminError("Error reassigning partition(s):\n" + _explained(errors))
    print(f"Successfully started partition reassignment{_s(plan)} for {listed(plan)}")
    if directories:
        await replica_moves.start(moves.admin, directories, arguments.timeout)


def _refuse_unknown(brokers: Iterable[int], known: Container[int]) -> None:
    if unknown := sorted(each for each in brokers if each not in known):
        raise AdminError(f"Unknown broker id {unknown[0]}")


async def _throttle(
    moves: Reassignments, under_way: dict[PartitionId, Any], plan: Plan, current: Plan, rate: int
) -> None:
    known = {
        partition: Move(frozenset(each.replicas) - frozenset(each.adding_replicas), frozenset(each.adding_replicas))
        for partition, each in under_way.items()
    }
    throttles = throttles_of(known, plan, current)
    for topic, replicas in throttles.leaders.items():
        await moves.configure_topic(topic, {LEADERS: replicas, FOLLOWERS: throttles.followers[topic]})
    for each in throttles.brokers:
        await moves.configure_broker(each, dict.fromkeys(RATES, str(rate)))
    print(f"The inter-broker throttle limit was set to {rate} B/s")


async def _throttle_directories(moves: Reassignments, directories: Directories, rate: int) -> None:
    for each in sorted({replica.broker_id for replica in directories}):
        await moves.configure_broker(each, {DIRECTORY_RATE: str(rate)})
    print(f"The replica-alter-dir throttle limit was set to {rate} B/s")


async def _verify(moves: Reassignments, arguments: argparse.Namespace) -> None:
    plan, directories = read_plan(arguments.reassignment_json_file)
    under_way = await moves.under_way()
    current = await moves.replicas(topic for topic, _ in plan)
    print("Status of partition reassignment:")
    for partition, replicas in sorted(plan.items()):
        if partition in under_way:
            print(f"Reassignment of partition {text_of(partition)} is still in progress.")
        elif current.get(partition) == replicas:
            print(f"Reassignment of partition {text_of(partition)} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {text_of(partition)}, but replica set is "
                f"{_ids(current.get(partition, ()))} rather than {_ids(replicas)}."
            )
    places = await replica_moves.places_of(moves.admin, directories)
    print("\n".join(replica_moves.line_of(each, directories[each], places[each]) for each in sorted(directories)))
    moving = not all(replica_moves.is_done(place) for place in places.values())
    if not under_way and not moving and not arguments.preserve_throttles:
        await _clear_throttles(moves, plan)


async def _cancel(moves: Reassignments, arguments: argparse.Namespace) -> None:
    plan, directories = read_plan(arguments.reassignment_json_file)
    active = plan.keys() & (await moves.under_way()).keys()
    if active:
        errors = await moves.alter(dict.fromkeys(active))
        if errors:
            raise AdminError(f"Error cancelling partition reassignment{_s(errors)} for:\n" + _explained(errors))
        print(f"Successfully cancelled partition reassignment{_s(active)} for: {listed(active)}")
    else:
        print("None of the specified partition reassignments are active.")
    places = await replica_moves.places_of(moves.admin, directories) if arguments.bootstrap_server else {}
    back = {each: place.current for each, place in places.items() if place.current and place.future}
    if back:
        await replica_moves.start(moves.admin, back, arguments.timeout)
    else:
        print("None of the specified partition moves are active.", end="")
    if not arguments.preserve_throttles and arguments.bootstrap_server:
        await _clear_throttles(moves, plan)
    else:
        print()


async def _clear_throttles(moves: Reassignments, plan: Plan) -> None:
    """Clears the throttles of every broker, because the brokers that sent replicas for an earlier plan are no longer
    known."""
    brokers = {node.broker_id for node in (await moves.admin.describe_cluster()).brokers}
    brokers.update(each for replicas in plan.values() for each in replicas)
    print(f"Clearing broker-level throttles on broker{_s(brokers)} {_ids(sorted(brokers))}")
    for each in sorted(brokers):
        await moves.configure_broker(each, dict.fromkeys((*RATES, DIRECTORY_RATE)))
    topics = sorted({topic for topic, _ in plan})
    print(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
    for name in topics:
        await moves.configure_topic(name, dict.fromkeys((LEADERS, FOLLOWERS)))


def _replicas_of(plan: Plan) -> Iterable[ReplicaId]:
    return (ReplicaId(*partition, each) for partition, replicas in plan.items() for each in replicas)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _s(things: Any) -> str:
    return "" if len(things) == 1 else "s"


def _explained(errors: dict[PartitionId, str]) -> str:
    return "\n".join(f"{text_of(partition)}: {message}" for partition, message in sorted(errors.items()))
