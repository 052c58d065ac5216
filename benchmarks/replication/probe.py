"""Writes small records to many partitions, with one request in flight at each node. Notes when each partition
acknowledges a record, and the longest time between two acknowledgements."""

import contextlib
import itertools
import operator
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.peers import requests
from benchmarks.peers.rows import PIPELINE_DEPTH, one_record

from .cluster import LIMIT_S

MOST_PARTITIONS = 500  # the most partitions in one request
PAUSE_S = 0.001  # pause when there is no request for a node, or when the node does not answer
REFUSED = -1  # stands for the error of a request whose connection broke


class Probe:
    """Writes repeatedly to these partitions of one topic: `with Probe(nodes, topic, leaders) as probe`.

    `leaders` holds the node to which the first request for each partition goes. After a refusal the next request for
    that partition goes to the next node, so the probe needs no metadata. For each partition, `stalls` holds the longest
    time between two acknowledgements, `last` the moment of the last acknowledgement, and `by` the node that sent it.
    """

    def __init__(self, nodes, topic, leaders):
        self.nodes, self.topic = nodes, topic
        self.where = dict(leaders)
        self.last, self.by, self.stalls = {}, {}, dict.fromkeys(leaders, 0.0)
        self._record = one_record()
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(node_id,)) for node_id in nodes.addresses]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        self.nodes.wait(lambda: len(self.last) == len(self.where), f"{len(self.where)} partitions probed")
        self.forget()
        return self

    def __exit__(self, *_):
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def forget(self):
        """Forgets the stalls that were measured so far."""
        self.stalls = dict.fromkeys(self.where, 0.0)

    def wait_at(self, node_id):
        """Waits until this node acknowledges the records of each partition. Then starts to measure the stalls again.
        The wait is needed: on a busy machine the node's short session may have expired, and then another node leads."""

        def leads():
            if set(self.by.values()) == {node_id}:
                return True
            self.nodes.elect([(self.topic, index) for index in self.where])  # refused until the node is in sync
            return False

        self.nodes.wait(leads, f"a record in each partition at node {node_id}")
        self.forget()

    def wait_without(self, gone):
        """Waits until a node other than `gone` has acknowledged a record of each partition. Returns the longest
        stall."""
        self.nodes.wait(lambda: gone not in self.by.values(), f"a record in each partition at a node other than {gone}")
        return max(self.stalls.values())

    def _run(self, node_id):
        connection = None
        order = list(self.nodes.addresses)
        following = order[(order.index(node_id) + 1) % len(order)]
        while not self._ends.is_set():
            mine = [each for each, place in list(self.where.items()) if place == node_id]
            if not mine:
                time.sleep(PAUSE_S)
                continue
            try:
                connection = connection or requests.Connection(self.nodes.addresses[node_id])
                connection.send(requests.produce_to([(self.topic, mine)], self._record))
                answered = [(index, error) for _, index, error in requests.produce_errors(connection.receive())]
            except OSError:
                answered = [(index, REFUSED) for index in mine]
                connection = closed(connection)
            self._note(answered, node_id, following)
        closed(connection)

    def _note(self, answered, node_id, following):
        now, refused = time.perf_counter(), False
        for index, error in answered:
            if error == requests.NO_ERROR:
                self.stalls[index] = max(self.stalls[index], now - self.last.get(index, now))
                self.last[index], self.by[index] = now, node_id
            else:
                self.where[index], refused = following, True
        if refused:
            time.sleep(PAUSE_S)


def closed(connection):
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.close()


def first_records(nodes, names, partitions):
    """Writes one record to each partition of these topics. Retries until each partition has acknowledged it."""
    left = {(name, index) for name in names for index in range(partitions)}
    deadline = time.monotonic() + LIMIT_S
    while left:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(left)} of {len(names) * partitions} partitions took no record within {LIMIT_S} s")
        by_node = {}
        for which, leader in nodes.leaders(*names).items():
            if which in left:
                by_node.setdefault(nodes.addresses[leader], []).append(which)
        with ThreadPoolExecutor(len(nodes.addresses)) as pool:
            left.difference_update(*pool.map(acknowledged, by_node, by_node.values()))


def acknowledged(address, which):
    """Sends one node a record for each partition in the list `which`, which has pairs (topic, partition). Returns the
    partitions that accepted their record."""
    record, taken = one_record(), set()
    connection = requests.Connection(address)
    waiting = 0
    parts = [which[at : at + MOST_PARTITIONS] for at in range(0, len(which), MOST_PARTITIONS)]
    for part in [*parts, *[None] * PIPELINE_DEPTH]:
        if part is not None:
            topics = itertools.groupby(sorted(part), key=operator.itemgetter(0))
            connection.send(requests.produce_to([(name, [i for _, i in group]) for name, group in topics], record))
            waiting += 1
        if waiting and (part is None or waiting == PIPELINE_DEPTH):
            answer = requests.produce_errors(connection.receive())
            taken.update((name, index) for name, index, error in answer if error == requests.NO_ERROR)
            waiting -= 1
    connection.close()
    return taken
