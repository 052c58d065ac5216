"""Voters that run an old release, which does not support all requests of new releases."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from random import Random

import controllers
from kafkacore.metadata.records import decode_batch
from kafkacore.protocol.errors import UnsupportedVersionError
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.core import RaftConfig
from kafkacore.raft.driver import RaftDriver
from kafkacore.raft.voters import ReplicaKey, Voter, VoterSet


class VoterBeforePreVotes:
    """A stub of such a voter. It refuses a pre-vote as a client without a common version does, and passes votes to the
    test."""

    def __init__(self) -> None:
        self.refused = 0
        self.voted: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def send(self, host, port, request):
        if request.NAME == "VoteRequest":
            if request.topics[0].partitions[0].pre_vote:
                self.refused += 1
                raise UnsupportedVersionError("VoteRequest.topics[0].partitions[0].pre_vote")
            if not self.voted.done():
                self.voted.set_result(request)
        raise ConnectionError("this voter answers nothing else")


def test_replica_stands_for_election_when_the_other_voter_knows_no_pre_votes():
    async def story():
        network, loop = VoterBeforePreVotes(), asyncio.get_running_loop()
        executor: Executor = controllers.Now()
        voters = VoterSet(
            [Voter(ReplicaKey(node_id), (("CONTROLLER", "localhost", 9090 + node_id),)) for node_id in (1, 2)]
        )
        driver = RaftDriver(
            RaftConfig(
                node_id=1, directory_id=Uuid(b"d" * 16), cluster_id="a-cluster", voters=voters, election_timeout_ms=20
            ),
            controllers.SyncedMemoryLog(),
            None,
            decode=decode_batch,
            persist=lambda state, version: None,
            network=network,
            executor=executor,
            random=Random(1),
            now_ms=lambda: int(loop.time() * 1000),
            wall_ms=lambda: 0,
            on_fault=network.voted.set_exception,
        )
        await driver.start()
        try:
            return network, await asyncio.wait_for(network.voted, 20)
        finally:
            await driver.stop()

    network, vote = asyncio.run(story())
    assert network.refused >= 1
    (asked,) = vote.topics[0].partitions
    assert (asked.replica_id, asked.replica_epoch, asked.pre_vote) == (1, 1, False)
