"""Measures how long a controller's request waits at a broker, under four loads. The request reaches a handler in one of
three ways:

`shared`: the request waits behind the requests of clients, in the order of arrival. `lane`: it uses the same listener,
but overtakes the requests that wait in the queue (KAFKA-4453). `apart`: it uses the listener of
control.plane.listener.name (KIP-291). Apache Kafka has no lane. On our brokers `shared` sends AlterPartition, which has
no priority.

All other requests are StopReplicas with an old broker epoch, so the broker refuses them and changes nothing.
"""

import contextlib
import json

from benchmarks.control_plane.load import Load
from benchmarks.control_plane.pairs import (
    BELOW,
    CONTROLLER,
    FULL,
    LOADED,
    PARTITIONS,
    STOP_REPLICA,
    Link,
    framed,
    latencies_ms,
)
from benchmarks.peers.requests import produce
from benchmarks.peers.rows import one_record

from kafkacore.protocol import apis
from kafkacore.protocol.messages import AlterPartitionRequest, AlterPartitionResponse
from kafkacore.protocol.uuid import Uuid
from quorums import OURS

LOADS = ("idle", "producing", "below", "full")
ASKED = 200
STORM = 20  # connections that send AlterPartition, each for PARTITIONS partitions
ALTER_VERSION = 2


def ways(pair):
    """Returns (name, address, request) for each path of a controller request to a handler of these brokers."""
    if pair.apart:
        return [("apart", pair.control_address, STOP_REPLICA)]
    address = pair.addresses[LOADED]
    if pair.kind != OURS:
        return [("shared", address, STOP_REPLICA)]
    regular = framed(AlterPartitionRequest(broker_id=CONTROLLER, broker_epoch=0), ALTER_VERSION)
    return [("shared", address, regular), ("lane", address, STOP_REPLICA)]


def measure(pair, load, limit_s, producers):
    """Returns the latencies on each path in milliseconds, by the name of the path."""
    with under(pair, load, producers):
        return {name: latencies_ms(address, request, ASKED, limit_s) for name, address, request in ways(pair)}


@contextlib.contextmanager
def under(pair, load, producers):
    if load == "idle":
        yield
        return
    if load == "producing":
        frames = [produce(pair.topic, index, one_record(), acks=1) for index in range(PARTITIONS)]
        made = Load(pair.addresses[LOADED], producers, frames)
    else:
        made = pair.backlog(BELOW if load == "below" else FULL)
    with made, made.running():
        yield


def storm(pair, limit_s):
    """Sends the same request to the controller's own broker. The only control plane handler of this broker also serves
    the AlterPartition requests of all brokers. Returns {"quiet": [milliseconds], "storm": [milliseconds],
    "AlterPartition/s": rate}."""
    address = pair.cluster.control_addresses[CONTROLLER]
    quiet = latencies_ms(address, STOP_REPLICA, ASKED, limit_s)
    with Load(address, STORM, [unchanged_isrs(pair, address)]) as load, load.running():
        stormy = latencies_ms(address, STOP_REPLICA, ASKED, limit_s)
    return {"quiet": quiet, "storm": stormy, "AlterPartition/s": load.rate}


def unchanged_isrs(pair, address):
    """Returns the loaded broker's AlterPartition for all partitions with their present ISRs. The controller accepts the
    request and writes nothing."""
    with pair.zookeeper() as client:
        epoch = client.exists(f"/brokers/ids/{LOADED}").czxid
        topic_id = json.loads(client.get(f"/brokers/topics/{pair.topic}")[0])["topic_id"]
        found = [client.get(f"/brokers/topics/{pair.topic}/partitions/{index}/state") for index in range(PARTITIONS)]
    made = AlterPartitionRequest
    states = [(index, json.loads(text), stat.version) for index, (text, stat) in enumerate(found)]
    parts = [
        made.PartitionData(
            partition_index=index, leader_epoch=state["leader_epoch"], new_isr=state["isr"], partition_epoch=version
        )
        for index, state, version in states
        if state["leader"] == LOADED
    ]
    topic = made.TopicData(topic_id=Uuid.parse(topic_id), partitions=parts)
    request = framed(made(broker_id=LOADED, broker_epoch=epoch, topics=[topic]), ALTER_VERSION)
    check_taken(address, request)
    return request


def check_taken(address, request):
    with Link(address) as link:
        answer = link.call(request)
    header = len(apis.response_header(AlterPartitionRequest.API_KEY, ALTER_VERSION, 1))
    told = AlterPartitionResponse.decode(answer[header:], ALTER_VERSION)
    errors = [each.error_code for topic in told.topics for each in topic.partitions if each.error_code]
    if told.error_code or errors:
        raise RuntimeError(f"AlterPartition: error {told.error_code}, {errors}")
