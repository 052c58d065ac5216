"""`kafkacore leader-election`, as kafka-leader-election.sh (KIP-460)."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ElectLeadersRequest
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.tools.admin import Admin, AdminError, add_endpoints, check, run_admin
from kafkacore.tools.reassignment import PartitionId, entries, read_file, text_of

DESCRIPTION: Final = (
    "Elects the preferred leaders of partitions, or elects out-of-sync replicas if no in-sync replica is alive."
)
TYPES: Final = {"PREFERRED": 0, "UNCLEAN": 1}
TIMEOUT_MS: Final = 15_000
_ELECTED: Final = {"topic": "orders", "partition": 0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_endpoints(parser)
    parser.add_argument(
        "--election-type", required=True, type=str.upper, choices=sorted(TYPES), help="the kind of election"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--topic", metavar="NAME", help="the topic of --partition")
    where.add_argument("--path-to-json-file", metavar="FILE", help='{"partitions": [{"topic": "t", "partition": 0}]}')
    where.add_argument("--all-topic-partitions", action="store_true", help="every partition that needs an election")
    parser.add_argument("--partition", type=int, metavar="INDEX", help="the partition of --topic")


def run(arguments: argparse.Namespace) -> int:
    try:
        if (arguments.topic is None) != (arguments.partition is None):
            raise AdminError("--topic and --partition must be given together")
        return _report(arguments.election_type, run_admin(arguments, lambda admin: _elect(admin, arguments)))
    except AdminError as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1


async def _elect(admin: Admin, arguments: argparse.Namespace) -> Any:
    request = ElectLeadersRequest(
        election_type=TYPES[arguments.election_type], timeout_ms=TIMEOUT_MS, topic_partitions=_partitions(arguments)
    )
    answer = await admin.ask_controller(request, lambda answer: int(answer.error_code))
    check(answer.error_code, None)
    return answer


def _partitions(arguments: argparse.Namespace) -> list[Any] | None:
    """Returns the partitions that the arguments name. None means all partitions."""
    if arguments.all_topic_partitions:
        return None
    asked = [(arguments.topic, arguments.partition)] if arguments.topic else _from_file(arguments.path_to_json_file)
    topics: dict[str, list[int]] = {}
    for topic, index in asked:
        topics.setdefault(topic, []).append(index)
    made = ElectLeadersRequest.TopicPartitions
    return [made(topic=topic, partitions=indexes) for topic, indexes in topics.items()]


def _from_file(path: str) -> list[PartitionId]:
    found = [(each["topic"], each["partition"]) for each in entries(path, read_file(path), "partitions", _ELECTED)]
    if not found:
        raise AdminError(
            f'{path} names no partition: "partitions" must be a list of entries like {json.dumps(_ELECTED)}'
        )
    if len(set(found)) < len(found):
        twice = sorted({text_of(each) for each in found if found.count(each) > 1})
        raise AdminError(f"Replica election data contains duplicate partitions: [{', '.join(twice)}]")
    return found


def _report(kind: str, answer: Any) -> int:
    """Prints the results in the form of Kafka's tool. Returns the exit code."""
    elected, led, failed = [], [], {}
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            place = text_of((topic.topic, each.partition_id))
            if not each.error_code:
                elected.append(place)
            elif each.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                led.append(place)
            else:
                failed[place] = each.error_message or error_of_peer(each.error_code).message
    if elected:
        print(f"Successfully completed leader election ({kind}) for partitions {', '.join(elected)}")
    if led:
        print(f"Valid replica already elected for partitions {', '.join(led)}")
    for place, message in failed.items():
        print(f"Error completing leader election ({kind}) for partition: {place}: {message}")
    if failed:
        print(f"kafkacore: {len(failed)} replica(s) could not be elected", file=sys.stderr)
    return 1 if failed else 0
