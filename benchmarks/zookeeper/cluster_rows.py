"""The rows of `benchmarks.zookeeper.cluster`. Each row is a function that puts a load on one cluster for a moment and
returns its figures."""

import dataclasses
import time
from collections.abc import Callable

from benchmarks.peers.requests import NO_ERROR
from benchmarks.replication.probe import Probe, first_records

from kafkacore.protocol.messages import CreateTopicsRequest

from .trio import CONTROLLER, IDS, VICTIM

TOPIC_PARTITIONS = 10
LED = "led"
CALM_S = 2.0
STOP_S = 300
PAUSE_S = 0.001
REPLICAS_OF_PROOF = 2  # replicas of the topic that proves the failover: one broker is gone


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The amount of work of each row."""

    created_partitions: int = 5000
    led_partitions: int = 10_000
    probed_partitions: int = 100


@dataclasses.dataclass(frozen=True)
class Row:
    """One row. Rows with the same `prepare` share a cluster, which `prepare` fills. `title` contains placeholders for
    the sizes."""

    title: str
    shown: str
    measure: Callable
    prepare: Callable | None = None


def topics(trio, sizes):
    """Creates the topics with one request."""
    names = topic_names(sizes)
    began = time.perf_counter()
    trio.make(names, TOPIC_PARTITIONS)
    answered_s = time.perf_counter() - began
    first_records(trio, names, TOPIC_PARTITIONS)
    return {"answered s": answered_s, "first records acknowledged s": time.perf_counter() - began}


def topic_names(sizes):
    return [f"many-{number}" for number in range(sizes.created_partitions // TOPIC_PARTITIONS)]


def failover(trio, sizes):
    """Kills the controller with SIGKILL. Asks the other brokers again and again to create a topic, until one of them
    answers without an error."""
    if not trio.partitions(*topic_names(sizes)[:1]):
        trio.make(topic_names(sizes), TOPIC_PARTITIONS)
    trio.wait_whole(topic_names(sizes))
    with trio.watched("/controller") as deletion:
        killed = time.perf_counter()
        trio.brokers[CONTROLLER].kill()
        proven = until_created(trio)
        ended = deletion.wait()
    return {"after the session s": proven - ended, "after the kill s": proven - killed}


def until_created(trio):
    """Waits until a broker answers CreateTopics without an error. Returns the time of that answer."""
    made, number = CreateTopicsRequest.CreatableTopic, 0
    others = [node_id for node_id in IDS if node_id != CONTROLLER]
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        for node_id in others:
            number += 1
            topic = made(name=f"proof-{number}", num_partitions=1, replication_factor=REPLICAS_OF_PROOF)
            if trio.create(node_id, [topic]) == [NO_ERROR]:
                return time.perf_counter()
        time.sleep(PAUSE_S)
    raise RuntimeError(f"no topic was created within {STOP_S} s")


def led(trio, sizes):
    trio.make_led(LED, sizes.led_partitions)


def probe(trio, sizes):
    """Returns a probe that writes to some of the partitions that the victim leads."""
    step = max(sizes.led_partitions // sizes.probed_partitions, 1) | 1  # odd, so that both halves are probed
    return Probe(trio, LED, dict.fromkeys(range(0, sizes.led_partitions, step), VICTIM))


def shutdown(trio, sizes):
    """Stops the leader of all partitions with SIGTERM, and brings it back afterwards."""
    with probe(trio, sizes) as probed:
        time.sleep(CALM_S)  # for comparison, the longest stall without a fault
        calm_s = max(probed.stalls.values())
        probed.wait_at(VICTIM)
        began = time.perf_counter()
        trio.brokers[VICTIM].child.terminate(STOP_S)
        exit_s = time.perf_counter() - began
        stall_s = probed.wait_without(VICTIM)
    trio.bring_back(VICTIM, LED)
    return {"longest stall ms": stall_s * 1000, "before that ms": calm_s * 1000, "exit s": exit_s}


def failure(trio, sizes):
    """Kills the leader of all partitions with SIGKILL. A part of the stall is the time until ZooKeeper ends the
    broker's session. A second figure leaves this part out: it starts when the broker's registration disappears."""
    with probe(trio, sizes) as probed, trio.watched(f"/brokers/ids/{VICTIM}") as deletion:
        probed.wait_at(VICTIM)
        trio.brokers[VICTIM].kill()
        time.sleep(CALM_S)  # less than a session: no other broker leads yet, and every record counts
        last = dict(probed.last)
        stall_s = probed.wait_without(VICTIM)
        resumed = max(at + probed.stalls[index] for index, at in last.items())
        ended = deletion.wait()
    return {"longest stall after the session ms": (resumed - ended) * 1000, "longest stall s": stall_s}


ROWS = {
    "topics": Row("{created} topics of 10 partitions created", "answered s", topics),
    "failover": Row("controller failover, {partitions} partitions", "after the session s", failover),
    "shutdown": Row("controlled shutdown of the leader of {led} partitions", "longest stall ms", shutdown, led),
    "failure": Row(
        "SIGKILL of the leader of {led} partitions", "longest stall after the session ms", failure, led
    ),
}  # fmt: skip


def titles(sizes):
    """Returns the titles of the rows, with the sizes."""
    words = {
        "created": f"{sizes.created_partitions // TOPIC_PARTITIONS:,}",
        "partitions": f"{sizes.created_partitions:,}",
        "led": f"{sizes.led_partitions:,}",
    }
    return {name: row.title.format(**words) for name, row in ROWS.items()}
