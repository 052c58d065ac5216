"""The simulated ZooKeeper: servers that lag behind, sessions that time out, and repeatable runs."""

import asyncio

import pytest

from kafkacore.zookeeper.client import SessionState
from kafkacore.zookeeper.operations import (
    Code,
    Create,
    CreateMode,
    EventType,
    Exists,
    GetData,
    Multi,
    SetData,
    Sync,
    WatchEvent,
)
from simulated_zookeepers import run_story, until

LAG_S = 0.3


def server_of(world, client):
    return next(
        server
        for server in world.zookeeper.servers.values()
        for connection in server.connections
        if connection is world.zookeeper.sessions[client.session_id].connection
    )


async def two_clients(world):
    """Returns a client that is connected to a lagging server, and a client at another server."""
    slow, fast = await world.client(session_timeout_ms=9_000), await world.client(session_timeout_ms=9_000)
    while server_of(world, slow) is server_of(world, fast):
        await fast.close()
        fast = world.make_client(session_timeout_ms=9_000)
        await fast.start()
    server = server_of(world, slow)
    server.lag(LAG_S)
    return slow, fast, server


def test_client_reads_the_past_until_it_syncs_when_its_server_lags():
    async def story(world):
        slow, fast, _ = await two_clients(world)
        await fast.submit([Create("/a", b"new")])
        assert (await slow.submit([Exists("/a")]))[0].code is Code.NO_NODE
        synced, read = await slow.submit([Sync("/"), GetData("/a")])
        assert synced.is_ok
        assert read.value[0] == b"new"

    run_story(story)


def test_client_reads_its_own_writes_when_its_server_lags():
    async def story(world):
        slow, fast, _ = await two_clients(world)
        began = asyncio.get_running_loop().time()
        results = await slow.submit([Create("/a", b"1"), GetData("/a"), Multi([SetData("/a", b"2", 0)]), GetData("/a")])
        assert [results[1].value[0], results[3].value[0]] == [b"1", b"2"]
        assert asyncio.get_running_loop().time() - began >= 2 * LAG_S
        assert (await fast.submit([GetData("/a")]))[0].value[0] == b"2"

    run_story(story)


def test_watch_fires_late_but_before_the_result_when_its_server_lags():
    async def story(world):
        slow, fast, _ = await two_clients(world)
        seen = []
        slow.on_watch(lambda event: seen.append((event, asyncio.get_running_loop().time())))
        await slow.submit([Exists("/a", watch=True)])
        await fast.submit([Create("/a")])
        began = asyncio.get_running_loop().time()
        await slow.submit([Sync("/"), Exists("/a")])
        ((event, at),) = seen
        assert event == WatchEvent(EventType.CREATED, "/a")
        assert at - began > LAG_S / 2

    run_story(story)


def test_client_stays_disconnected_while_the_only_server_lags_behind_it():
    async def story(world):
        _, fast, server = await two_clients(world)
        server.lag(1_000.0)
        await fast.submit([Create("/a")])
        for other in world.zookeeper.servers.values():
            if other is not server:
                other.stop()
        await asyncio.sleep(3)
        assert fast.state is SessionState.CONNECTING
        server.lag(0)
        assert (await fast.read([Exists("/a")]))[0].is_ok

    run_story(story)


def test_znodes_are_the_same_everywhere_when_a_server_has_caught_up():
    async def story(world):
        slow, fast, server = await two_clients(world)
        writes = [Create("/a"), *[Create(f"/a/{n}", b"", CreateMode.PERSISTENT_SEQUENTIAL) for n in range(20)]]
        await asyncio.gather(slow.submit(writes), fast.submit(writes), fast.submit([Multi([Create("/x/y")])]))
        await until(lambda: server.tree.zxid == world.zookeeper.tree.zxid)
        assert server.tree is not world.zookeeper.tree
        stats = [
            {path: node.stat() for path, node in tree.nodes.items()} for tree in (server.tree, world.zookeeper.tree)
        ]
        assert stats[0] == stats[1]

    run_story(story)


@pytest.mark.parametrize("seed", range(3))
def test_run_repeats_when_the_seed_is_the_same(seed):
    async def story(world):
        client = await world.client()
        told = []
        client.on_state(lambda state, session: told.append((state.name, session, asyncio.get_running_loop().time())))
        for name in world.names:
            world.network.cut("client", name)
        await until(lambda: client.state is SessionState.CONNECTING)
        world.network.heal()
        await client.read([Exists("/a")])
        await client.submit([Create("/a", b"", CreateMode.EPHEMERAL)])
        return told, world.zookeeper.tree.nodes["/a"].stat(), world.schedule.turns

    assert run_story(story, seed) == run_story(story, seed)
