"""KIP-291 lists what goes wrong when a controller request is late. Measures each of these effects as a client sees it.

`leave`: the leadership of one partition moves away from the loaded broker. The LeaderAndIsr and UpdateMetadata for that
broker wait behind the backlog. Meanwhile clients write to the broker and ask it for Metadata (consequences 1, 2, 4).
`arrive`: the leadership moves to the loaded broker (consequence 3). `deletion`: a client deletes a topic with a replica
on the loaded broker (consequence 5).
"""

import contextlib
import itertools
import threading
import time

from benchmarks.control_plane.pairs import CONTROLLER, LIMIT_S, LOADED, PARTITIONS, Link, framed
from benchmarks.peers.requests import metadata, produce_errors

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.messages import ProduceRequest
from processes import wait_until

# The number of connections for each value of acks. With this number, one of their requests is always near the front of
# the queue.
WRITERS = 8
PAUSE_S = 0.005  # the time that a client waits after an answer before it sends its next request
NOT_LEADER = 6
NONE = 0
_NUMBERS = itertools.count(1)


def batch(number):
    builder = RecordBatchBuilder()
    builder.append(int(time.time() * 1000), None, b"<%d>" % number)
    return builder.build()


def produce(topic, partitions, number, acks):
    made, records = ProduceRequest, batch(number)
    parts = [made.PartitionProduceData(index=index, records=records) for index in partitions]
    asked = made.TopicProduceData(name=topic, partition_data=parts)
    return framed(made(acks=acks, timeout_ms=LIMIT_S * 1000, topic_data=[asked]), 7)


class Client(threading.Thread):
    """Sends requests to one broker until `end` is called. `rounds` counts the answers."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.rounds = address, 0
        self._over = threading.Event()

    def run(self):
        with Link(self.address) as link:
            while not self._over.wait(PAUSE_S):
                self.ask(link)
                self.rounds += 1

    def end(self):
        self._over.set()


class Writer(Client):
    """Writes to partition 0 with acks=1. `acknowledged` holds (time, number) of the records that the broker
    acknowledged. `refused` holds the times of the NOT_LEADER_OR_FOLLOWER answers."""

    def __init__(self, address, topic):
        super().__init__(address)
        self.topic, self.acknowledged, self.refused = topic, [], []

    def ask(self, link):
        number = next(_NUMBERS)
        answer = link.call(produce(self.topic, [0], number, 1))
        [(_, _, error)] = produce_errors(answer[4:])
        now = time.perf_counter()
        if error == NONE:
            self.acknowledged.append((now, number))
        else:
            self.refused.append(now)


class WriterOfAll(Client):
    """Writes to all partitions with acks=all. `latencies_ms` holds (time of the answer, latency, whether the answer
    refused the record for partition 0)."""

    def __init__(self, address, topic):
        super().__init__(address)
        self.topic, self.latencies_ms = topic, []

    def ask(self, link):
        request = produce(self.topic, range(PARTITIONS), next(_NUMBERS), -1)
        began = time.perf_counter()
        answer = link.call(request)
        now = time.perf_counter()
        errors = {index: error for _, index, error in produce_errors(answer[4:])}
        self.latencies_ms.append((now, (now - began) * 1e3, errors[0] != NONE))


class UnacknowledgedWriter(Client):
    """Writes to partition 0 with acks=0. Sends a Metadata request after each record. The answer to this request shows
    that the broker accepted the record, because a broker that refuses a record closes the connection. The numbers of
    the accepted records are in `taken`."""

    def __init__(self, address, topic):
        super().__init__(address)
        self.topic, self.taken, self.closed = topic, [], False

    def ask(self, link):
        if self.closed:
            return
        number = next(_NUMBERS)
        try:
            link.call(produce(self.topic, [0], number, 0) + metadata(self.topic))
            self.taken.append(number)
        except OSError:
            self.closed = True


class Asker(Client):
    """Asks for Metadata of the topic. `seen` holds (time of the request, time of the answer, leader of partition 0)."""

    def __init__(self, pair, node_id, topic):
        super().__init__(pair.addresses[node_id])
        self.pair, self.node_id, self.topic, self.seen = pair, node_id, topic, []
        self._request = metadata(topic)

    def ask(self, link):
        asked = time.perf_counter()
        link.call(self._request)
        self.seen.append((asked, time.perf_counter(), self.pair.leader_at(self.node_id, self.topic)))


@contextlib.contextmanager
def running(*clients):
    """Waits until each client has received an answer. Then runs the body of the `with` statement."""
    for client in clients:
        client.start()
    try:
        wait_until(lambda: all(client.rounds for client in clients), LIMIT_S, "an answer to each client")
        yield
    finally:
        for client in clients:
            client.end()
        for client in clients:
            client.join(LIMIT_S)


def leave(pair):
    """Moves the leadership of partition 0 from the loaded broker to the controller's broker. Returns the measured times
    in milliseconds, and the numbers of lost records and of stale answers."""
    topic, old = pair.topic, pair.addresses[LOADED]
    bring(pair, LOADED)
    pair.prepare_leader(topic, CONTROLLER)
    all_of_it = WriterOfAll(old, topic)
    writers = [Writer(old, topic) for _ in range(WRITERS)]
    silent = [UnacknowledgedWriter(old, topic) for _ in range(WRITERS)]
    at_old, at_new = Asker(pair, LOADED, topic), Asker(pair, CONTROLLER, topic)
    with pair.backlog() as backlog, backlog.running(), running(all_of_it, at_old, at_new, *writers, *silent):
        began = time.perf_counter()
        pair.elect(topic)
        wait_until(lambda: leaders(at_new)[-1:] == [CONTROLLER], LIMIT_S, "the new leader in Metadata")
        wait_until(
            lambda: (
                leaders(at_old)[-1:] == [CONTROLLER]
                and all_of_it.latencies_ms[-1][2]
                and all(each.refused for each in writers)
                and all(each.closed for each in silent)
            ),
            LIMIT_S, "the loaded broker to become a follower",
        )  # fmt: skip
    pair.settle(topic, CONTROLLER)
    kept = pair.records(topic, CONTROLLER)
    decided = next(answered for _, answered, leader in at_new.seen if leader == CONTROLLER)
    stale = [answered for _, answered, leader in at_old.seen if leader == LOADED and answered > decided]
    taken = [number for each in writers for _, number in each.acknowledged]
    parked = next(latency for _, latency, refused in all_of_it.latencies_ms if refused)
    return {
        "acks_all_ms": [latency for at, latency, _ in all_of_it.latencies_ms if at <= began],
        "acks_all_moving_ms": [parked],
        "lost_acks_1": [len(set(taken) - kept)],
        "lost_acks_0": [len({number for each in silent for number in each.taken} - kept)],
        "stale_answers": [len(stale)],
        "stale_ms": [(max(stale) - decided) * 1e3 if stale else 0.0],
    }


def leaders(asker):
    return [leader for _, _, leader in asker.seen]


def arrive(pair):
    """Moves the leadership of partition 0 to the loaded broker. Measures how long no broker accepted a record for this
    partition."""
    topic = pair.topic
    bring(pair, CONTROLLER)
    pair.prepare_leader(topic, LOADED)
    old = Writer(pair.addresses[CONTROLLER], topic)
    new = [Writer(pair.addresses[LOADED], topic) for _ in range(WRITERS)]
    with pair.backlog() as backlog, backlog.running(), running(old, *new):
        pair.elect(topic)
        wait_until(
            lambda: old.refused and any(each.acknowledged for each in new), LIMIT_S, "a record at the new leader"
        )
    pair.settle(topic, LOADED)
    first = min(each.acknowledged[0][0] for each in new if each.acknowledged)
    return {"without_leader_ms": [max(first - old.acknowledged[-1][0], 0.0) * 1e3]}


def deletion(pair):
    """Deletes a topic with a replica on the loaded broker. Measures the time until the controller has deleted the
    topic's znode."""
    name = pair.create([[CONTROLLER, LOADED]])
    with pair.zookeeper() as client, pair.backlog() as backlog, backlog.running():
        began = time.perf_counter()
        pair.delete(name)
        wait_until(lambda: client.exists(f"/brokers/topics/{name}") is None, LIMIT_S, "the end of the deletion")
        return {"deletion_ms": [(time.perf_counter() - began) * 1e3]}


def bring(pair, leader):
    """Makes broker `leader` the leader of partition 0 while no load runs."""
    if pair.leader_at(CONTROLLER, pair.topic) != leader:
        pair.prepare_leader(pair.topic, leader)
        pair.elect(pair.topic)
    pair.settle(pair.topic, leader)


EXPERIMENTS = (leave, arrive, deletion)
