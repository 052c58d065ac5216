"""Group members for tests. There is one class for each client library, and all classes have the same interface."""

import asyncio
import json
import os
import queue
import select
import shutil
import subprocess
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from processes import PEERS, need, wait_until

PATIENCE_S = 30
HEARTBEAT_MS = 100
KAFKAJS = PEERS / "kafkajs" / "node_modules" / "kafkajs"


class ConfluentMember:
    """A member that uses librdkafka. `strategy` is range or cooperative-sticky."""

    def __init__(self, broker, group, topic, strategy="range", instance=None, session_ms=6000):
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "partition.assignment.strategy": strategy, "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS, "log_level": 0, "topic.metadata.refresh.interval.ms": 500,
            "reconnect.backoff.max.ms": 200,
        }  # fmt: skip
        if instance:
            settings["group.instance.id"] = instance
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])
        self.values = []

    def poll(self):
        for message in self.consumer.consume(100, 0.02):
            assert not message.error(), message.error()
            self.values.append(message.value())

    def partitions(self):
        return {each.partition for each in self.consumer.assignment()}

    def commit(self):
        self.consumer.commit(asynchronous=False)

    def committed(self):
        return {each.partition: each.offset for each in self.consumer.committed(self.consumer.assignment(), PATIENCE_S)}

    def close(self):
        self.consumer.close()


class KafkaPythonMember:
    """A member that uses kafka-python, on a thread that polls all the time. `strategy` is range or sticky.

    If a join ends while nobody polls, kafka-python throws the result away and joins again. When this happens to the
    leader, the group rebalances. Two members that one thread polls in turns can repeat this for ever."""

    def __init__(self, broker, group, topic, strategy="range"):
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        assignor = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}[strategy]
        self.consumer = KafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=6000, heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[assignor],
        )  # fmt: skip
        # If a group leader learns about the topic only during the assignment, it assigns no partition, and it never
        # tries again. So the leader must know the topic before it joins.
        wait_until(lambda: self.consumer.partitions_for_topic(topic), PATIENCE_S, f"metadata of {topic} in the client")
        self.values = []
        self.calls, self.is_closed = queue.SimpleQueue(), False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        """Polls, and between two polls makes the calls of other threads."""
        while not self.is_closed:
            try:
                future, call = self.calls.get_nowait()
            except queue.Empty:
                for records in self.consumer.poll(20).values():
                    self.values += [record.value for record in records]
                continue
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - the thread that made the call raises it
                future.set_exception(error)

    def run(self, call):
        future = Future()
        self.calls.put((future, call))
        return future.result(2 * PATIENCE_S)

    def poll(self):
        assert self.thread.is_alive()
        time.sleep(0.02)

    def partitions(self):
        return self.run(lambda: {each.partition for each in self.consumer.assignment()})

    def commit(self):
        self.run(self.consumer.commit)

    def committed(self):
        return self.run(lambda: {each.partition: self.consumer.committed(each) for each in self.consumer.assignment()})

    def close(self):
        self.is_closed = True
        self.thread.join(2 * PATIENCE_S)
        self.consumer.close()


class AioKafkaMember:
    """A member that uses aiokafka on a separate event loop and thread. `strategy` is range, roundrobin or sticky."""

    def __init__(self, broker, group, topic, strategy="range"):
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        assignor = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[strategy]

        async def start():
            consumer = AIOKafkaConsumer(
                topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest",
                enable_auto_commit=False, session_timeout_ms=6000, heartbeat_interval_ms=HEARTBEAT_MS,
                partition_assignment_strategy=[assignor],
            )  # fmt: skip
            # `start` returns when the group has its assignment. For that, the other members must poll meanwhile.
            return consumer, asyncio.ensure_future(consumer.start())

        self.consumer, self.started = self.run(start())
        self.values = []

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_S)

    def poll(self):
        if not self.started.done():
            time.sleep(0.02)
            return
        for records in self.run(self.consumer.getmany(timeout_ms=20)).values():
            self.values += [record.value for record in records]

    def partitions(self):
        return {each.partition for each in self.consumer.assignment()} if self.started.done() else set()

    def commit(self):
        self.run(self.consumer.commit())

    def committed(self):
        return {each.partition: self.run(self.consumer.committed(each)) for each in self.consumer.assignment()}

    def close(self):
        self.run(self.consumer.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)
        self.loop.close()


class KafkaJsMember:
    """A member that uses kafkajs in a process of its own (kafkajs_member.mjs). It supports only the round robin
    assignor."""

    def __init__(self, broker, group, topic, session_ms=6000):
        need(
            shutil.which("node") and KAFKAJS.exists(),
            "no node 20 with kafkajs: apt install nodejs npm, then make peers",
        )
        program = Path(__file__).with_name("kafkajs_member.mjs")
        command = ["node", program, KAFKAJS, broker.bootstrap, group, topic, str(session_ms)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.told = b""
        self.values, self.assigned, self.done = [], set(), None

    def poll(self, wait_s=0.02):
        readable, _, _ = select.select([self.process.stdout], [], [], wait_s)
        if not readable:
            return
        chunk = os.read(self.process.stdout.fileno(), 1 << 16)
        assert chunk, f"the kafkajs process exited with {self.process.wait(PATIENCE_S)}"
        *lines, self.told = (self.told + chunk).split(b"\n")
        for event in map(json.loads, lines):
            if "value" in event:
                self.values.append(event["value"].encode())
            elif "partitions" in event:
                self.assigned = set(event["partitions"])
            else:
                self.done = event["done"]

    def ask(self, command):
        self.done = None
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()
        deadline = time.monotonic() + PATIENCE_S
        while self.done is None:
            assert time.monotonic() < deadline, f"kafkajs did not finish `{command}` in time"
            self.poll(deadline - time.monotonic())
        return self.done

    def partitions(self):
        return self.assigned

    def commit(self):
        self.ask("commit")

    def committed(self):
        return dict(self.ask("committed"))

    def kill(self):
        self.process.kill()
        self.reap()

    def close(self):
        self.ask("close")
        self.reap()

    def reap(self):
        self.process.wait(PATIENCE_S)
        self.process.stdin.close()
        self.process.stdout.close()


def poll_until(members, condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        shown = [sorted(member.partitions()) for member in members]
        assert time.monotonic() < deadline, (
            f"{what}: partitions {shown}, {[len(each.values) for each in members]} records"
        )
        for member in members:
            member.poll()
