"""Our fetcher follows a partition that a broker of Apache Kafka leads. Our broker consists only of this fetcher and a
registration. The leader accepts only a registered replica into the ISR.
"""

import asyncio
import contextlib
import random
import threading
import uuid

import pytest
from confluent_kafka import Producer

from asking import ask
from brokers import APACHE
from followed_leader import values
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.protocol.messages import BrokerHeartbeatRequest, BrokerRegistrationRequest, MetadataRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.replication.fetchers import Address, Follow
from kafkacore.replication.making import Threads, make_fetchers
from kafkacore.server.features import supported_features
from quorums import OURS
from replicated import ReplicatedCluster
from served_leader import Processing, until

pytestmark = pytest.mark.timeout(180)
THEIRS, MINE, CONTROLLER = 101, 102, 1
LIMIT_S = 60


class Registration:
    """Registers broker MINE and keeps it unfenced. Its heartbeats contain the end of the metadata log as its offset."""

    def __init__(self, cluster, cluster_id):
        self._cluster, self._address = cluster, cluster.addresses[CONTROLLER]
        registered = ask(
            self._address,
            BrokerRegistrationRequest(
                broker_id=MINE,
                cluster_id=cluster_id,
                incarnation_id=Uuid(uuid.uuid4().bytes),
                listeners=[
                    BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)
                ],
                features=[
                    BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in supported_features().items()
                ],
                log_dirs=[Uuid(bytes([MINE]) * 16)],
            ),
            3,
        )
        assert registered.error_code == 0
        self.epoch = registered.broker_epoch
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self):
        while not self._end.wait(0.3):
            request = BrokerHeartbeatRequest(
                broker_id=MINE,
                broker_epoch=self.epoch,
                current_metadata_offset=self._cluster.quorum(CONTROLLER).high_watermark,
                want_fence=False,
            )
            with contextlib.suppress(OSError):
                ask(self._address, request, 1)

    def close(self):
        self._end.set()
        self._thread.join()


def described(cluster, topic):
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    return ask(cluster.addresses[THEIRS], asked, 12)


def in_sync(cluster):
    return sorted(described(cluster, "orders").topics[0].partitions[0].isr_nodes)


@pytest.mark.parametrize("release", APACHE)
def test_fetcher_joins_the_isr_and_has_every_record_when_apache_kafka_leads(release, tools_of_either, tmp_path):
    cluster = ReplicatedCluster(
        tmp_path / "cluster", controllers={CONTROLLER: OURS}, brokers={THEIRS: release}, tools=tools_of_either
    )
    registration = None
    try:
        cluster.start(".".join(APACHE[release].split(".")[:2]))
        registration = Registration(cluster, described(cluster, "none").cluster_id)
        cluster.wait(lambda: MINE in cluster.unfenced(THEIRS), "our registration unfenced")
        cluster.create("orders", [[THEIRS, MINE]])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
        for number in range(500):
            producer.produce("orders", b"%d" % number, partition=0)
        assert producer.flush(LIMIT_S) == 0
        # Our replica has not fetched for replica.lag.time.max.ms.
        cluster.wait(lambda: in_sync(cluster) == [THEIRS], "a leader that is alone in the ISR")
        asyncio.run(follow(cluster, registration, producer, tmp_path))
    finally:
        if registration is not None:
            registration.close()
        cluster.close()


async def follow(cluster, registration, producer, path):
    (topic,) = described(cluster, "orders").topics
    (led,) = topic.partitions
    environment = Environment()
    (path / "mine").mkdir()
    log = PartitionHandle(LogDirectory(environment, str(path / "mine")), "orders", 0, topic.topic_id)
    log.become_follower(THEIRS, led.leader_epoch, 0)
    config = BrokerConfig(
        {
            "process.roles": "broker",
            "node.id": str(MINE),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": cluster.addresses[CONTROLLER],
            "listeners": "PLAINTEXT://127.0.0.1:1",
            "log.dirs": str(path / "mine"),
        }
    )
    processing = Processing(environment)
    threads = Threads(processing.plane, [processing.processor])
    fetchers = make_fetchers(config, environment, random.Random(1), None, lambda: registration.epoch, lambda: threads)
    host, port = cluster.addresses[THEIRS].split(":")
    try:
        fetchers.brokers({THEIRS: Address(host, int(port))}, registration.epoch)
        fetchers.follow([Follow(log, THEIRS, led.leader_epoch)])
        async with asyncio.timeout(LIMIT_S):
            await asyncio.to_thread(cluster.wait, lambda: in_sync(cluster) == [THEIRS, MINE], "our replica in the ISR")
            for number in range(500, 600):
                producer.produce("orders", b"%d" % number, partition=0)
            assert await asyncio.to_thread(producer.flush, LIMIT_S) == 0
            await until(lambda: log.high_watermark == 600)
        assert [value for _, _, value in values(log)] == [b"%d" % number for number in range(600)]
        (measured,) = fetchers.measures()
        assert measured.appended_bytes == log.size_bytes
        assert measured.failed == 0
    finally:
        await fetchers.close()
        processing.close()
