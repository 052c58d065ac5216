"""The client, tested with the simulated ZooKeeper in virtual time: lost connections, expiry, watches and fenced
writes."""

import asyncio

import pytest
import uvloop

from kafkacore.server.zookeeper.metrics import session_metrics
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.client import ZooKeeperClient
from kafkacore.zookeeper.common_writes import create_ephemeral, ensure_paths, read_all
from kafkacore.zookeeper.fenced import ControllerMovedError, cut, write_fenced
from kafkacore.zookeeper.operations import (
    Code,
    Create,
    CreateMode,
    Delete,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    WatchEvent,
    ZooKeeperError,
)
from kafkacore.zookeeper.session import SessionState
from simulated_zookeepers import run_story, until


def nodes(world):
    return world.zookeeper.tree.nodes


def codes(results):
    return [each.code.name for each in results]


def states_of(client):
    states = []
    client.on_state(lambda state, _: states.append(state.name))
    return states


def shown(client):
    """Returns the counts that the metrics show, and the label of the state."""
    found = {}
    for each in session_metrics(client):
        name = each.name.removeprefix("ZooKeeper").removesuffix("PerSec")
        found[name] = each.tags[0][1] if each.tags else each.value
    return found


# --- lost connections ---


@pytest.mark.parametrize("happened", [True, False])
def test_outcome_is_unknown_when_the_connection_breaks_in_the_middle_of_a_multi(happened):
    async def story(world):
        client = await world.client()
        states = states_of(client)
        hook = "lose_after" if happened else "lose_before"
        setattr(world.zookeeper, hook, lambda count, operation: isinstance(operation, Multi))
        results = await client.submit([Create("/a"), Multi([Create("/b"), Create("/c")]), Create("/d")])
        assert codes(results) == ["OK", "CONNECTION_LOSS", "CONNECTION_LOSS"]
        assert ("/b" in nodes(world), "/c" in nodes(world), "/d" in nodes(world)) == (happened, happened, False)
        (found,) = await client.read([Exists("/b")])
        assert found.is_ok is happened
        assert states == ["CONNECTING", "CONNECTED"]

    run_story(story)


def test_reads_are_asked_again_when_they_were_cut_off():
    async def story(world):
        client = await world.client()
        await client.submit([Create("/a", b"x")])
        reading = asyncio.ensure_future(client.read([GetData("/a"), GetData("/b")]))
        await asyncio.sleep(0)
        for server in world.zookeeper.servers.values():
            server.cut_connections()
        assert codes(await reading) == ["OK", "NO_NODE"]

    run_story(story)


def test_session_survives_when_its_server_stops():
    async def story(world):
        client = await world.client()
        session_id = client.session_id
        await client.submit([Create("/mine", b"", CreateMode.EPHEMERAL)])
        connected = next(one for one in world.zookeeper.servers.values() if one.connections)
        connected.stop()
        assert codes(await client.read([Exists("/mine")])) == ["OK"]
        assert client.session_id == session_id
        assert not connected.connections

    run_story(story)


def test_metrics_show_connections_and_sessions_when_they_break_and_end():
    async def story(world):
        client = await world.client()
        await client.submit([Create("/a")])
        latency = shown(client).pop("RequestLatencyMs")
        assert sum(latency.counts) == 1
        assert latency.total > 0
        for server in world.zookeeper.servers.values():
            if server.connections:
                server.stop()
        await until(lambda: client.state is SessionState.CONNECTING)
        assert shown(client)["SessionState"] == "CONNECTING"
        await until(lambda: client.state is SessionState.CONNECTED)
        world.zookeeper.expire(client.session_id)
        await until(lambda: client.state is SessionState.CLOSED)
        await client.start()
        await client.close()
        counts = shown(client)
        counts.pop("RequestLatencyMs")
        # The client of an expired session first loses its connection. Another server then refuses the session.
        assert counts == {
            "SessionState": "CLOSED", "SyncConnects": 3, "Disconnects": 2, "Expires": 1, "AuthFailures": 0,
        }  # fmt: skip

    run_story(story)


def test_client_leaves_a_server_when_it_has_not_seen_what_the_client_saw():
    async def story(world):
        client = await world.client()
        await client.submit([Create("/a")])
        # Makes every server appear to lag behind the client.
        real_zxid, world.zookeeper.tree.zxid = world.zookeeper.tree.zxid, 1
        for server in world.zookeeper.servers.values():
            server.cut_connections()
        await asyncio.sleep(2)
        assert client.state is SessionState.CONNECTING
        world.zookeeper.tree.zxid = real_zxid
        assert codes(await client.read([Exists("/a")])) == ["OK"]

    run_story(story)


def test_start_gives_up_when_no_server_answers():
    async def story(world):
        client = world.make_client()
        for server in world.zookeeper.servers.values():
            server.stop()
        with pytest.raises(TimeoutError, match="zookeeper-1"):
            await client.start(3_000)
        assert client.state is SessionState.CLOSED
        for server in world.zookeeper.servers.values():
            server.start()
        await client.start(3_000)
        assert client.state is SessionState.CONNECTED
        with pytest.raises(RuntimeError, match="one at a time"):
            await client.start(3_000)

    run_story(story)


# --- expiry ---


def test_timer_fires_once_when_deadlines_have_passed_on_a_real_loop(monkeypatch):
    # After a stall of the loop, the deadline of a session has passed when it is set.
    async def story():
        client = ZooKeeperClient("localhost:1")
        client._loop = asyncio.get_running_loop()
        fired = client._loop.create_future()
        monkeypatch.setattr(client, "_timer_fired", lambda: fired.set_result(client._timer_at))
        past_ms = client._loop.time() * 1000 - 1000
        for deadline in (past_ms, past_ms + 5, past_ms - 5):
            client._set_timer(deadline)
        assert await fired == (past_ms - 5) / 1000

    uvloop.run(story())


def test_session_closes_once_and_leaves_nothing_when_it_expires_behind_a_cut_link():
    async def story(world):
        client = await world.client()
        states = states_of(client)
        await client.submit([Create("/mine", b"", CreateMode.EPHEMERAL), Exists("/later", watch=True)])
        events = []
        client.on_watch(events.append)
        for name in world.names:
            world.network.cut("client", name)
        write = asyncio.ensure_future(client.submit([Create("/late")]))
        await until(lambda: "/mine" not in nodes(world))
        world.network.heal()
        assert codes(await write) == ["CONNECTION_LOSS"]
        await until(lambda: client.state is SessionState.CLOSED)
        assert states == ["CONNECTING", "CLOSED"]
        former = client.session_id
        await client.start()
        assert client.session_id != former
        assert client.former_session_ids == [former]
        await client.submit([Create("/later")])
        assert events == [], "no watch of the former session may fire"

    run_story(story)


def test_broker_replaces_its_znode_when_its_former_session_still_owns_it():
    async def story(world):
        client = await world.client()
        first = await create_ephemeral(client, "/id", b"1")
        zookeeper = world.zookeeper
        session = zookeeper.sessions[client.session_id]
        # The client learns that its session has ended before the znode disappears, as can happen between two servers.
        del zookeeper.sessions[client.session_id]
        session.connection.cut()
        await until(lambda: client.state is SessionState.CLOSED)
        await client.start()
        second = await create_ephemeral(client, "/id", b"2")
        assert second.ephemeral_owner == client.session_id
        assert second.czxid > first.czxid
        assert nodes(world)["/id"].data == b"2"

    run_story(story)


def test_broker_does_not_take_a_znode_when_somebody_else_owns_it():
    async def story(world):
        one, other = await world.client(), await world.client()
        await create_ephemeral(one, "/id", b"one")
        with pytest.raises(ZooKeeperError) as refused:
            await create_ephemeral(other, "/id", b"other")
        assert refused.value.code is Code.NODE_EXISTS
        assert nodes(world)["/id"].data == b"one"

    run_story(story)


@pytest.mark.parametrize("hook", ["lose_before", "lose_after"])
def test_ephemeral_znode_is_created_once_when_the_answer_is_lost(hook):
    async def story(world):
        client = await world.client()
        setattr(world.zookeeper, hook, lambda count, operation: count == 1)
        stat = await create_ephemeral(client, "/id", b"1")
        assert stat.ephemeral_owner == client.session_id
        assert nodes(world)["/id"].czxid == stat.czxid

    run_story(story)


def test_missing_paths_are_created_when_connections_break_again_and_again():
    async def story(world):
        client = await world.client("", session_timeout_ms=10_000)
        world.zookeeper.lose_after = lambda count, operation: count % 7 == 0
        await ensure_paths(client, paths.PERSISTENT)
        assert set(paths.PERSISTENT) <= set(nodes(world))
        found = await read_all(client, ["/brokers/ids", "/nowhere"])
        assert list(found) == ["/brokers/ids"]

    run_story(story)


# --- watches ---


def test_watch_fires_once_and_before_the_result_that_shows_the_change():
    async def story(world):
        watcher, writer = await world.client(), await world.client()
        await writer.submit([Create("/a")])
        seen = []
        watcher.on_watch(seen.append)
        await watcher.submit([GetData("/a", watch=True)])
        await writer.submit([SetData("/a", b"1"), SetData("/a", b"2")])
        ((_, (data, stat)),) = await watcher.submit([GetData("/a")])
        assert (data, stat.version) == (b"2", 2)
        assert seen == [WatchEvent(EventType.DATA_CHANGED, "/a")]

    run_story(story)


def test_watch_fires_after_the_reconnect_when_the_change_came_in_between():
    async def story(world):
        watcher, writer = await world.client("", session_timeout_ms=10_000), await world.client()
        await writer.submit([Create("/data"), Create("/gone"), Create("/list"), Create("/same")])
        seen = []
        watcher.on_watch(lambda event: seen.append((event.type.name, event.path)))
        await watcher.submit([
            GetData("/data", watch=True), GetData("/gone", watch=True), GetChildren("/list", watch=True),
            Exists("/new", watch=True), GetData("/same", watch=True),
        ])  # fmt: skip
        held = next(iter(world.zookeeper.sessions[watcher.session_id].connection._server.connections))
        world.zookeeper.sessions[watcher.session_id].connection.cut()
        assert held is not None
        await writer.submit([SetData("/data", b"1"), Delete("/gone"), Create("/list/child"), Create("/new")])
        await watcher.read([Exists("/")])
        await until(lambda: len(seen) == 4)
        assert sorted(seen) == [
            ("CHILDREN_CHANGED", "/list"), ("CREATED", "/new"), ("DATA_CHANGED", "/data"), ("DELETED", "/gone"),
        ]  # fmt: skip
        await writer.submit([SetData("/same", b"1")])
        await until(lambda: len(seen) == 5)
        assert seen[-1] == ("DATA_CHANGED", "/same")

    run_story(story)


def test_results_and_other_callbacks_come_when_one_callback_fails(caplog):
    async def story(world):
        client = await world.client()
        seen = []
        client.on_watch(lambda event: 1 / 0)
        client.on_watch(seen.append)
        results = await client.submit([Exists("/a", watch=True), Create("/a"), Exists("/a")])
        assert codes(results) == ["NO_NODE", "OK", "OK"]
        assert seen == [WatchEvent(EventType.CREATED, "/a")]
        assert "ZeroDivisionError" in caplog.text

    run_story(story)


# --- fenced writes ---


async def controller(world):
    client = await world.client()
    await client.submit([Create(paths.CONTROLLER_EPOCH, b"1"), *[Create(f"/n{number}") for number in range(50)]])
    return client


def test_fenced_writes_take_one_multi_for_many_znodes():
    async def story(world):
        client = await controller(world)
        before = world.zookeeper.writes
        results = await write_fenced(client, [SetData(f"/n{number}", b"x", 0) for number in range(50)], 0)
        assert world.zookeeper.writes - before == 1
        assert [each.value.version for each in results] == [1] * 50

    run_story(story)


def test_fenced_writes_change_nothing_when_the_controller_has_moved():
    async def story(world):
        client = await controller(world)
        await client.submit([SetData(paths.CONTROLLER_EPOCH, b"2")])
        with pytest.raises(ControllerMovedError) as moved:
            await write_fenced(client, [SetData(f"/n{number}", b"x") for number in range(50)], 0, max_operations=7)
        assert moved.value.results == [None] * 50
        assert not any(nodes(world)[f"/n{number}"].version for number in range(50))

    run_story(story)


@pytest.mark.parametrize("conflicts", [[0], [49], [3, 4, 5], list(range(0, 50, 3)), list(range(50))])
@pytest.mark.parametrize("max_operations", [1, 7, 100])
def test_only_the_conflicting_writes_fail_when_a_multi_has_some(conflicts, max_operations):
    async def story(world):
        client = await controller(world)
        await client.submit([SetData(f"/n{number}", b"other") for number in conflicts])
        writes = [SetData(f"/n{number}", b"mine", 0) for number in range(50)]
        results = await write_fenced(client, writes, 0, max_operations=max_operations)
        assert [number for number, each in enumerate(results) if each.code is Code.BAD_VERSION] == conflicts
        for number in range(50):
            node = nodes(world)[f"/n{number}"]
            assert (node.data, node.version) == (b"other" if number in conflicts else b"mine", 1)

    run_story(story)


def test_children_are_created_when_an_earlier_multi_with_their_parent_had_a_conflict():
    async def story(world):
        client = await controller(world)
        writes = [Create("/n0"), Create("/parent"), *[Create(f"/parent/{number}") for number in range(10)]]
        results = await write_fenced(client, writes, 0, max_operations=3)
        assert codes(results) == ["NODE_EXISTS", *["OK"] * 11]

    run_story(story)


def test_fenced_writes_are_cut_by_bytes_and_a_huge_one_fails_alone():
    async def story(world):
        client = await controller(world)
        writes = [SetData(f"/n{number}", bytes(100_000)) for number in range(20)]
        writes[7] = SetData("/n7", bytes(1_100_000))
        before = world.zookeeper.writes
        results = await write_fenced(client, writes, 0)
        assert [number for number, each in enumerate(results) if not each.is_ok] == [7]
        assert results[7].code is Code.MARSHALLING_ERROR
        assert 5 <= world.zookeeper.writes - before <= 8

    run_story(story)


def test_cut_names_every_write_once_and_keeps_both_bounds():
    writes = [SetData("/x" * (number % 50 + 1), bytes(number * 7 % 900)) for number in range(1_000)]
    runs = list(cut(writes, 40, 5_000))
    assert [place for run in runs for place in run] == list(range(1_000))
    assert max(map(len, runs)) <= 40
    assert all(sum(len(writes[place].data) + len(writes[place].path) for place in run) <= 5_000 for run in runs)
    assert list(cut([], 40, 5_000)) == []


def test_outcomes_are_unknown_when_the_connection_breaks_during_fenced_writes():
    async def story(world):
        client = await controller(world)
        first = world.zookeeper.writes
        world.zookeeper.lose_after = lambda count, operation: count == first + 2
        results = await write_fenced(client, [SetData(f"/n{n}", b"x") for n in range(50)], 0, max_operations=10)
        assert codes(results) == ["OK"] * 10 + ["CONNECTION_LOSS"] * 40
        assert [nodes(world)[f"/n{number}"].version for number in range(50)] == [1] * 20 + [0] * 30

    run_story(story)
