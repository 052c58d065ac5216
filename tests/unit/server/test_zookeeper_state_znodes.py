"""ISRs that a leader writes to state znodes, and producer ids that a broker takes from a znode."""

import asyncio
import json

from kafkacore.protocol.errors import ErrorCode
from kafkacore.server.zookeeper.producer_id_znode import allocate
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.server.zookeeper.state_znodes import LINGER_S, MAX_DELAY_S, StateChange, StateZnodes, Written
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import OPEN_ACL, Create, SetData
from simulated_zookeepers import run_story, until

STATE = paths.partition_state("t", 0)


async def made(world, broker_id=1):
    client = await world.client()
    session = BrokerSession(
        client, broker_id, lambda path: OPEN_ACL, connection_timeout_ms=5_000, on_epoch=print, on_fault=print
    )
    await session.make_paths([*paths.PERSISTENT, paths.partition("t", 0)])
    return session


def change(version, *isr, epoch=3):
    return StateChange("t", 0, znodes.PartitionState(1, 5, list(isr), epoch), version)


def notes(world):
    return [
        znodes.decode_isr_change(node.data)
        for path, node in sorted(world.zookeeper.tree.nodes.items())
        if path.startswith(f"{paths.ISR_CHANGES}/")
    ]


def test_leader_writes_its_isr_over_the_version_that_it_knows():
    async def story(world):
        session = await made(world)
        await session.client.submit([Create(STATE, b"{}")])
        states = StateZnodes(session)
        [written] = await states.write([change(0, 1)])
        assert written == Written(ErrorCode.NONE, 1)
        found = json.loads(world.zookeeper.tree.nodes[STATE].data)
        assert (found["isr"], found["leader_epoch"], found["controller_epoch"]) == ([1], 5, 3)
        # Meanwhile the controller has elected another leader.
        await session.client.submit([SetData(STATE, znodes.encode_states([znodes.PartitionState(2, 6, [2], 4)])[0], 1)])
        [refused] = await states.write([change(1, 1, 2)])
        assert refused.error == ErrorCode.INVALID_UPDATE_VERSION
        assert znodes.decode_state(world.zookeeper.tree.nodes[STATE].data).leader == 2
        gone = StateChange("gone", 0, znodes.PartitionState(1, 5, [1], 3), 0)
        assert (await states.write([gone]))[0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        states.close()

    run_story(story)


def test_write_succeeds_when_the_same_state_stands_there_already():
    """The first attempt was successful, but its answer was lost."""

    async def story(world):
        session = await made(world)
        await session.client.submit([Create(STATE, b"{}")])
        states = StateZnodes(session)
        await states.write([change(0, 1)])
        assert await states.write([change(0, 1)]) == [Written(ErrorCode.NONE, 1)]
        states.close()

    run_story(story)


def test_one_note_names_many_changes():
    async def story(world):
        session = await made(world)
        await session.client.submit([Create(STATE, b"{}")])
        states = StateZnodes(session)
        loop = asyncio.get_running_loop()
        await states.write([change(0, 1)])
        await until(lambda: notes(world))
        assert notes(world) == [[("t", 0)]]
        # While an ISR keeps changing, the leader sends one notification in each MAX_DELAY_S.
        told_s, version = loop.time(), 1
        while len(notes(world)) == 1:
            await states.write([change(version, 1, *([2] if version % 2 else []))])
            version += 1
            await asyncio.sleep(LINGER_S / 5)
        assert loop.time() - told_s >= MAX_DELAY_S - LINGER_S
        # The notification about the last change comes after a delay.
        await until(lambda: not states._untold)
        states.close()

    run_story(story)


def test_notification_follows_when_the_first_attempt_breaks():
    async def story(world):
        session = await made(world)
        await session.client.submit([Create(STATE, b"{}")])
        states = StateZnodes(session)
        broken = asyncio.Event()

        async def refuse(operations):
            broken.set()
            raise OSError("the session breaks")

        await states.write([change(0, 1)])
        session.sure, sure = refuse, session.sure
        await broken.wait()
        session.sure = sure
        assert not notes(world)
        await until(lambda: notes(world))
        assert notes(world) == [[("t", 0)]]
        states.close()

    run_story(story)


def test_closed_leader_leaves_no_timer():
    async def story(world):
        session = await made(world)
        await session.client.submit([Create(STATE, b"{}")])
        states = StateZnodes(session)
        began = asyncio.Event()

        async def hang(operations):
            began.set()
            await asyncio.get_running_loop().create_future()

        await states.write([change(0, 1)])
        session.sure = hang
        await began.wait()
        telling = states._telling
        states.close()
        await asyncio.wait([telling])
        assert states._timer is None

    run_story(story)


def test_brokers_take_different_blocks_of_producer_ids_from_the_znode():
    async def story(world):
        sessions = [await made(world, broker_id) for broker_id in (1, 2)]
        blocks = await asyncio.gather(*(allocate(session) for session in sessions * 3))
        assert sorted(block.first for block in blocks) == [1000 * number for number in range(6)]
        assert {block.size for block in blocks} == {1000}
        assert json.loads(world.zookeeper.tree.nodes[paths.PRODUCER_ID_BLOCK].data)["block_end"] == "5999"

    run_story(story)
