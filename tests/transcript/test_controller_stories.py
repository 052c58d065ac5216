"""Readable dialogues with the KRaft controller. Each file in `controller/` contains one dialogue, called a story.

A line that begins with `>` is a request. Below it are the records that it appends, with their offsets, and the answer.
To write the answers of a new or changed story, run pytest with KAFKACORE_WRITE_TRANSCRIPTS=1 and read the difference.

    > cluster LEVEL               a new cluster at this metadata.version, with one controller
    > register BROKER [new]       a broker; `new`: its next incarnation, after an unclean shutdown
    > heartbeat BROKER [fence] [leave]
    > create TOPIC REPLICAS... [key=value...]   `1,2 2,1` makes two partitions
    > grow TOPIC REPLICAS...
    > delete TOPIC
    > ids BROKER                  AllocateProducerIds
    > silence MS                  no heartbeat arrives for this time, then the clock ticks
    > config KIND NAME [check] CHANGES...   KIND is topic, broker, group or metrics. The NAME `-` stands for the empty
                                  name. A change is key=value, key+=value, key-=value or key!. `check` sets
                                  validate_only
    > configs KIND NAME key=value...        AlterConfigs: sets these keys and removes all others
    > quota ENTITY... CHANGES...  an entity is kind:name, or `kind:` for the default entity. A change is key=value or
                                  key!
    > elect preferred|unclean TOPIC:PARTITION...|all
    > reassign TOPIC:PARTITION REPLICAS|cancel [another-factor]
    > reassignments               lists the reassignments in progress
    > feature NAME LEVEL [safe|unsafe] [check]
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

from controllers import Caller, Harness
from kafkacore._fast.record.batch import Batches
from kafkacore.metadata.records import decode_record
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import (
    AllocateProducerIdsRequest,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest,
)

STORIES = sorted((Path(__file__).parent / "controller").glob("*.txt"))
LIMIT_MS = 1000
KINDS = {"topic": 2, "broker": 4, "metrics": 16, "group": 32}
OPERATIONS = {"": 0, "!": 1, "+": 2, "-": 3}


class Story:
    def __init__(self) -> None:
        self.incarnations: dict[int, int] = {}
        self.shown = 0

    async def do(self, line: str) -> list[str]:
        name, *words = line.split()
        try:
            answer = await getattr(self, name)(*words)
        except KafkaError as error:
            answer = f"{ErrorCode(error.code).name}: {error}"
        return [*self.appended(), f"answer: {answer}"] if answer else self.appended()

    def appended(self) -> list[str]:
        log, told = self.harness.log, []
        for batch in Batches(log.read(self.shown, 1 << 30)) if self.shown < log.end_offset else ():
            if not batch.is_control:
                told += [f"{record.offset} {shown(decode_record(record.value))}" for record in batch]
        self.shown = log.end_offset
        return told

    async def cluster(self, level: str) -> None:
        self.harness = Harness(level=int(level))
        await self.harness.start()

    async def register(self, broker: str, new: str = "") -> str:
        self.incarnations[int(broker)] = self.incarnations.get(int(broker), 0) + bool(new)
        if new:
            self.harness.now += self.harness.config.broker_session_timeout_ms
        response = await self.harness.register(int(broker), self.incarnations[int(broker)])
        return f"epoch {response.broker_epoch}"

    async def heartbeat(self, broker: str, *wants: str) -> str:
        response = await self.harness.heartbeat(
            int(broker), want_fence="fence" in wants, want_shut_down="leave" in wants
        )
        return ("fenced" if response.is_fenced else "unfenced") + (", may go" if response.should_shut_down else "")

    async def create(self, name: str, *words: str) -> str:
        made = CreateTopicsRequest
        topic = made.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                made.CreatableReplicaAssignment(partition_index=index, broker_ids=ids(word))
                for index, word in enumerate(word for word in words if "=" not in word)
            ],
            configs=[
                made.CreatableTopicConfig(name=key, value=value)
                for key, value in (word.split("=") for word in words if "=" in word)
            ],
        )
        request = made(topics=[topic], timeout_ms=LIMIT_MS)
        return result((await self.harness.controller.create_topics(Caller(), request)).topics[0])

    async def grow(self, name: str, *replicas: str) -> str:
        made = CreatePartitionsRequest
        count = len(self.harness.controller.image.topic(name).partition_rows)
        assignments = [made.CreatePartitionsAssignment(broker_ids=ids(word)) for word in replicas]
        topic = made.CreatePartitionsTopic(name=name, count=count + len(replicas), assignments=assignments)
        request = made(topics=[topic], timeout_ms=LIMIT_MS)
        return result((await self.harness.controller.create_partitions(Caller(), request)).results[0])

    async def delete(self, name: str) -> str:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=LIMIT_MS)
        return result((await self.harness.controller.delete_topics(Caller(), request)).responses[0])

    async def ids(self, broker: str) -> str:
        request = AllocateProducerIdsRequest(broker_id=int(broker), broker_epoch=self.harness.epochs[int(broker)])
        response = await self.harness.controller.allocate_producer_ids(Caller(), request)
        return f"{response.producer_id_len} from {response.producer_id_start}"

    async def config(self, kind: str, name: str, *words: str) -> str:
        made = IncrementalAlterConfigsRequest
        changes = [change(word) for word in words if word != "check"]
        resource = made.AlterConfigsResource(
            resource_type=KINDS[kind],
            resource_name=name.strip("-"),
            configs=[made.AlterableConfig(name=k, config_operation=o, value=v) for k, o, v in changes],
        )
        request = made(resources=[resource], validate_only="check" in words)
        return result((await self.harness.controller.incremental_alter_configs(Caller(), request)).responses[0])

    async def configs(self, kind: str, name: str, *words: str) -> str:
        made = AlterConfigsRequest
        configs = [made.AlterableConfig(name=k, value=v) for k, _, v in map(change, words)]
        resource = made.AlterConfigsResource(resource_type=KINDS[kind], resource_name=name.strip("-"), configs=configs)
        return result((await self.harness.controller.alter_configs(Caller(), made(resources=[resource]))).responses[0])

    async def quota(self, *words: str) -> str:
        made = AlterClientQuotasRequest
        entity = [word.split(":") for word in words if ":" in word]
        ops = [change(word) for word in words if ":" not in word]
        entry = made.EntryData(
            entity=[made.EntityData(entity_type=kind, entity_name=name or None) for kind, name in entity],
            ops=[made.OpData(key=k, value=float(v or 0), remove=o == 1) for k, o, v in ops],
        )
        return result((await self.harness.controller.alter_client_quotas(Caller(), made(entries=[entry]))).entries[0])

    async def elect(self, kind: str, *names: str) -> str:
        made = ElectLeadersRequest
        topics = [
            made.TopicPartitions(topic=t, partitions=[int(p)]) for t, p in (n.split(":") for n in names if ":" in n)
        ]
        request = made(
            election_type=["preferred", "unclean"].index(kind),
            topic_partitions=None if names == ("all",) else topics,
            timeout_ms=LIMIT_MS,
        )
        answer = await self.harness.controller.elect_leaders(Caller(), request)
        return ", ".join(
            f"{topic.topic}-{each.partition_id} {result(each)}"
            for topic in answer.replica_election_results
            for each in topic.partition_result
        ) or "nothing"  # fmt: skip

    async def reassign(self, name: str, replicas: str, another: str = "") -> str:
        made = AlterPartitionReassignmentsRequest
        topic, partition = name.split(":")
        each = made.ReassignablePartition(
            partition_index=int(partition), replicas=None if replicas == "cancel" else ids(replicas)
        )
        request = made(
            topics=[made.ReassignableTopic(name=topic, partitions=[each])],
            timeout_ms=LIMIT_MS,
            allow_replication_factor_change=bool(another),
        )
        answer = await self.harness.controller.alter_partition_reassignments(Caller(), request)
        return result(answer.responses[0].partitions[0])

    async def reassignments(self) -> str:
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=LIMIT_MS)
        answer = await self.harness.controller.list_partition_reassignments(Caller(), request)
        return ", ".join(
            f"{topic.name}-{each.partition_index} {each.replicas} adding {each.adding_replicas} "
            f"removing {each.removing_replicas}"
            for topic in answer.topics
            for each in topic.partitions
        ) or "none"  # fmt: skip

    async def feature(self, name: str, level: str, *words: str) -> str:
        made = UpdateFeaturesRequest
        kind = 2 if "safe" in words else 3 if "unsafe" in words else 1
        update = made.FeatureUpdateKey(feature=name, max_version_level=int(level), upgrade_type=kind)
        request = made(feature_updates=[update], validate_only="check" in words, timeout_ms=LIMIT_MS)
        return result(await self.harness.controller.update_features(Caller(), request))

    async def silence(self, ms: str) -> None:
        # Like a real clock, the clock advances in small steps, because a controller that did not run for a while fences
        # no broker.
        for _ in range(10):
            self.harness.now += int(ms) // 10
            self.harness.controller.tick()
        end = self.harness.log.end_offset
        await self.harness.until(lambda: self.harness.controller.image.offset == end - 1)


def ids(word: str) -> list[int]:
    return [int(each) for each in word.split(",") if each != "-"]


def change(word: str) -> tuple[str, int, str | None]:
    """Returns the key, the operation and the value of a change."""
    if word.endswith("!"):
        return word[:-1], OPERATIONS["!"], None
    key, _, value = word.partition("=")
    return key.rstrip("+-"), OPERATIONS[key[-1] if key[-1] in "+-" else ""], value


def result(each: Any) -> str:
    return f"{ErrorCode(each.error_code).name}: {each.error_message}" if each.error_code else "NONE"


def shown(record: Any) -> str:
    """Returns the record as text, in which short numbers replace ids of 22 characters."""
    text = re.sub(r"Uuid\('A*([^']*)'\)", r"\1", repr(record))
    text = re.sub(r"RegisterBrokerRecord\.", "", text)
    return re.sub(r", features=\[.*?\]", "", text)


async def run(story: str) -> str:
    told, out = Story(), []
    for line in story.splitlines():
        if line.startswith("> "):
            out += [line, *[f"  {each}" for each in await told.do(line[2:])]]
        elif not line.startswith("  "):
            out.append(line)
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_controller_answers_as_in_its_story(path: Path) -> None:
    told = asyncio.run(run(path.read_text()))
    if os.environ.get("KAFKACORE_WRITE_TRANSCRIPTS"):
        path.write_text(told)
    assert told == path.read_text()
