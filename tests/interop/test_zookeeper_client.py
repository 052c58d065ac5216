"""Our ZooKeeper client with real servers of 3.8.4, compared with kazoo. The tests use a single server, and an ensemble
in which servers fail."""

import asyncio
import contextlib

import pytest

from kafkacore.zookeeper import paths
from kafkacore.zookeeper.client import ClientSettings, SessionState, ZooKeeperClient
from kafkacore.zookeeper.common_writes import create_ephemeral, ensure_paths
from kafkacore.zookeeper.fenced import ControllerMovedError, write_fenced
from kafkacore.zookeeper.operations import (
    CREATOR_ALL_ACL,
    READ_ACL,
    Check,
    Code,
    Create,
    CreateMode,
    Delete,
    EventType,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Multi,
    SetAcl,
    SetData,
    Sync,
    WatchEvent,
    ZooKeeperError,
)
from zookeepers import ZooKeeperEnsemble, ZooKeeperServer, need_zookeeper

LIMIT_S = 90


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    need_zookeeper()
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper") / "server") as one:
        yield one


@pytest.fixture
def ensemble(tmp_path):
    need_zookeeper()
    with ZooKeeperEnsemble(tmp_path / "ensemble", 3, properties={"readonlymode.enabled": "true"}) as three:
        yield three


def run(coroutine):
    async def limited():
        async with asyncio.timeout(LIMIT_S):
            return await coroutine

    return asyncio.run(limited())


async def started(connect, **settings):
    client = ZooKeeperClient(connect, ClientSettings(**settings))
    await client.start(30_000)
    return client


async def chrooted(connect, name, **settings):
    """Returns a client with a new chroot."""
    maker = await started(connect)
    await ensure_paths(maker, [f"/{name}"])
    await maker.close()
    return await started(f"{connect}/{name}", **settings)


async def until_state(client, *states):
    while client.state not in states:  # noqa: ASYNC110 - the time limit of the test ends this loop
        await asyncio.sleep(0.01)


def codes(results):
    return [each.code.name for each in results]


# --- kazoo for comparison ---


def kazoo_client(connect, **options):
    from kazoo.client import KazooClient

    client = KazooClient(connect, **options)
    client.start(timeout=30)
    return client


def test_both_clients_see_the_same_znodes_under_a_chroot(server):
    async def story():
        ours = await chrooted(server.connect, "twin")
        await ours.submit([
            Create("/a", b"data"), Create("/a/é", b""), Create("/a/s-", b"", CreateMode.PERSISTENT_SEQUENTIAL),
            Create("/e", b"", CreateMode.EPHEMERAL), SetData("/a", b"more", 0),
        ])  # fmt: skip
        reads = await ours.submit([GetData("/a"), GetChildren("/a"), Exists("/e"), GetAcl("/a"), GetChildren("/")])
        theirs = kazoo_client(f"{server.connect}/twin")
        try:
            data, stat = theirs.get("/a")
            assert reads[0].value == (data, tuple(stat))
            assert sorted(reads[1].value[0]) == sorted(theirs.get_children("/a"))
            assert reads[2].value == tuple(theirs.exists("/e"))
            acl, _ = theirs.get_acls("/a")
            assert [(each.perms, each.id.scheme, each.id.id) for each in acl] == reads[3].value[0]
            theirs.create("/from-kazoo", b"hello", ephemeral=True)
            ((_, (data, _)),) = await ours.submit([GetData("/from-kazoo")])
            assert data == b"hello"
        finally:
            theirs.stop()
            theirs.close()
        await ours.close()

    run(story())


def test_both_clients_get_the_same_errors_in_a_multi(server):
    from kazoo.exceptions import NodeExistsError, RolledBackError, RuntimeInconsistency

    async def story():
        ours = await chrooted(server.connect, "multi")
        await ours.submit([Create("/a")])
        (result,) = await ours.submit([Multi([Check("/a", 0), Create("/a"), Delete("/nowhere")])])
        assert (result.code, codes(result.value)) == (
            Code.NODE_EXISTS, ["OK", "NODE_EXISTS", "RUNTIME_INCONSISTENCY"],
        )  # fmt: skip
        theirs = kazoo_client(f"{server.connect}/multi")
        try:
            transaction = theirs.transaction()
            transaction.check("/a", 0)
            transaction.create("/a")
            transaction.delete("/nowhere")
            assert [type(each) for each in transaction.commit()] == [
                RolledBackError, NodeExistsError, RuntimeInconsistency,
            ]  # fmt: skip
        finally:
            theirs.stop()
            theirs.close()
        await ours.close()

    run(story())


# --- limits, authentication ---


def test_requests_and_answers_keep_to_jute_maxbuffer(server):
    async def story():
        client = await chrooted(server.connect, "large", max_response_bytes=600_000)
        big = bytes(500_000)
        both = Multi([SetData("/a", big), Create("/c", bytes(490_000))])
        results = await client.submit([Create("/a", big), Create("/b", bytes(1_100_000)), both])
        assert codes(results) == ["OK", "MARSHALLING_ERROR", "OK"]
        assert client.state is SessionState.CONNECTED
        await client.submit([Create(f"/{number:04d}-{'x' * 200}") for number in range(3_000)])
        (listed,) = await client.submit([GetChildren("/")])
        assert listed.code is Code.CONNECTION_LOSS, "as in Java, an answer above the limit must close the connection"
        (found,) = await client.read([Exists("/c")])
        assert found.value.data_bytes == 490_000
        await client.close()

    run(story())


def test_multi_above_the_limit_of_the_server_never_costs_the_connection_when_writes_are_fenced(server):
    async def story():
        client = await chrooted(server.connect, "fenced")
        states = []
        client.on_state(lambda state, _: states.append(state))
        await client.submit([Create(paths.CONTROLLER_EPOCH, b"1")])
        count = 20_000
        results = await write_fenced(client, [Create(f"/n{number}", bytes(100)) for number in range(count)], 0)
        assert {each.code for each in results} == {Code.OK}
        await client.submit([SetData("/n7", b"other")])
        results = await write_fenced(client, [SetData(f"/n{number}", b"x", 0) for number in range(count)], 0)
        assert [number for number, each in enumerate(results) if not each.is_ok] == [7]
        assert results[7].code is Code.BAD_VERSION
        await client.submit([SetData(paths.CONTROLLER_EPOCH, b"2")])
        with pytest.raises(ControllerMovedError):
            await write_fenced(client, [SetData("/n1", b"late")], 0)
        ((_, (data, _)),) = await client.submit([GetData("/n1")])
        assert data == b"x"
        assert states == []
        await client.close()

    run(story())


def test_digest_identity_guards_znodes(server):
    async def story():
        owner = await chrooted(server.connect, "acl", digest=("alice", "secret"))
        other = await started(f"{server.connect}/acl", digest=("bob", "secret"))
        nobody = await started(f"{server.connect}/acl")
        await owner.submit([Create("/mine", b"x", acl=CREATOR_ALL_ACL), Create("/shown", b"x", acl=READ_ACL)])
        reads = [GetData("/mine"), SetData("/mine", b""), GetData("/shown"), SetData("/shown", b"")]
        assert codes(await owner.submit(reads)) == ["OK", "OK", "OK", "NO_AUTH"]
        for stranger in (other, nobody):
            assert codes(await stranger.submit(reads)) == ["NO_AUTH", "NO_AUTH", "OK", "NO_AUTH"]
        refused = await nobody.submit([Create("/x", acl=CREATOR_ALL_ACL), Create("/x", acl=())])
        assert codes(refused) == ["INVALID_ACL", "INVALID_ACL"]
        # If the client sent the write together with the SetAcl, the server would still check it against the former ACL.
        assert codes(await owner.submit([SetAcl("/mine", READ_ACL)])) == ["OK"]
        assert codes(await owner.submit([SetData("/mine", b"")])) == ["NO_AUTH"]
        for client in (owner, other, nobody):
            await client.close()

    run(story())


def test_broker_is_registered_anew_when_its_session_expired_unseen(server):
    async def story():
        client = await chrooted(server.connect, "ids", session_timeout_ms=1_000)
        first = await create_ephemeral(client, "/1", b"first")
        other = await started(f"{server.connect}/ids")
        with pytest.raises(ZooKeeperError):
            await create_ephemeral(other, "/1", b"other")
        gone = asyncio.get_running_loop().create_future()
        other.on_watch(lambda event: gone.done() or gone.set_result(event))
        await other.submit([Exists("/1", watch=True)])
        # A client whose process is stopped, for example with SIGSTOP, sends no pings.
        held, client._session.effects = client._link._transport, []
        held.pause_reading()
        client._timer.cancel()
        assert await gone == WatchEvent(EventType.DELETED, "/1")
        held.resume_reading()
        await until_state(client, SessionState.CLOSED)
        await client.start(30_000)
        second = await create_ephemeral(client, "/1", b"second")
        assert second.czxid > first.czxid
        await client.close()
        await other.close()

    run(story())


# --- an ensemble in which servers fail ---


async def keep_writing(client, path, stop, acknowledged):
    """Increments a number in a znode again and again. After a write with an unknown outcome, reads the znode to find
    out whether the write took effect."""
    version = 0
    while not stop.is_set():
        (result,) = await client.submit([SetData(path, b"%d" % (version + 1), version)])
        if result.code is Code.CONNECTION_LOSS:
            (found,) = await client.read([Exists(path)])
            assert found.is_ok, found
            assert found.value.version in {version, version + 1}
            version = found.value.version
            continue
        assert result.is_ok, result
        version += 1
        acknowledged.append(version)
    return version


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_every_acknowledged_write_survives_when_the_ensemble_loses_its_leader(ensemble, fault):
    async def story():
        client = await started(ensemble.connect, session_timeout_ms=20_000)
        states, events = [], []
        client.on_state(lambda state, _: states.append(state))
        client.on_watch(events.append)
        session_id = client.session_id
        await client.submit([Create("/n"), Create("/mine", b"", CreateMode.EPHEMERAL), Exists("/later", watch=True)])
        stop, acknowledged = asyncio.Event(), []
        writing = asyncio.ensure_future(keep_writing(client, "/n", stop, acknowledged))
        leader = await asyncio.to_thread(ensemble.leader)
        getattr(leader, fault)()
        before = len(acknowledged)
        while len(acknowledged) < before + 50:
            await asyncio.sleep(0.01)
            assert not writing.done(), writing.exception()
        stop.set()
        version = await writing
        if fault == "kill":
            await asyncio.to_thread(leader.start)
        else:
            leader.resume()
        assert client.session_id == session_id
        results = await client.read([Sync("/"), GetData("/n"), Exists("/mine")])
        assert results[1].value[0] == b"%d" % version
        assert acknowledged[-1] <= version
        assert results[2].value.ephemeral_owner == session_id
        await client.submit([Create("/later")])
        await client.read([Exists("/")])
        assert events == [WatchEvent(EventType.CREATED, "/later")]
        assert SessionState.CLOSED not in states
        await client.close()

    run(story())


def test_client_leaves_a_server_when_it_became_read_only(ensemble):
    async def story():
        client = await started(ensemble.connect, session_timeout_ms=20_000)
        await client.submit([Create("/n")])
        stopped = ensemble.servers[:2]
        for server in stopped:
            server.kill()
        await until_state(client, SessionState.CONNECTING)
        alone = ensemble.servers[2]
        while await asyncio.to_thread(alone.mode) != "read-only":  # noqa: ASYNC110 - another process ends this
            await asyncio.sleep(0.05)
        waiting = asyncio.ensure_future(client.submit([SetData("/n", b"1")]))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 1.5)
        assert not waiting.done()
        assert client.state is SessionState.CONNECTING
        for server in stopped:
            server.launch()
        assert codes(await waiting) == ["OK"]
        await client.close()

    run(story())


class Wire:
    """A relay to a server. It can stop passing answers on, even in the middle of one. Requests still reach the
    server."""

    def __init__(self, server):
        self.server = server
        self.holds_answers = False
        self.writers = []

    async def __aenter__(self):
        self.listener = await asyncio.start_server(self.relay, "127.0.0.1", 0)
        self.connect = f"127.0.0.1:{self.listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.listener.close()
        self.cut()

    def cut(self):
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def relay(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self.server.port)
        self.writers += [writer, back]
        await asyncio.gather(self.pump(reader, back, answers=False), self.pump(there, writer, answers=True))

    async def pump(self, source, target, *, answers):
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if not (answers and self.holds_answers):
                    target.write(data)
        target.close()


def test_outcome_of_a_multi_is_unknown_and_read_back_when_the_connection_breaks_before_its_answer(server):
    async def story():
        direct = await chrooted(server.connect, "cut")
        async with Wire(server) as wire:
            client = await started(f"{wire.connect}/cut")
            wire.holds_answers = True
            writing = asyncio.ensure_future(client.submit([Multi([Create("/a"), Create("/b")]), Create("/c")]))
            while not (await direct.submit([Exists("/c")]))[0].is_ok:  # noqa: ASYNC110 - the server ends this
                await asyncio.sleep(0.01)
            wire.holds_answers = False
            wire.cut()
            assert codes(await writing) == ["CONNECTION_LOSS", "CONNECTION_LOSS"]
            assert codes(await client.read([Exists("/a"), Exists("/b")])) == ["OK", "OK"]
            await client.close()
        await direct.close()

    run(story())
