"""Random operations for ZooKeeper. They return their results in a form that does not depend on the server or the
client, so that tests can compare two servers or two clients.
"""

import asyncio

from kafkacore.zookeeper.operations import (
    CREATOR_ALL_ACL,
    OPEN_ACL,
    READ_ACL,
    Acl,
    Check,
    Create,
    Created,
    CreateMode,
    Delete,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Multi,
    SetAcl,
    SetData,
    Stat,
    Sync,
)

NAMES = ("a", "a", "a", "b", "b", "ü")
# A server rejects some of these.
ACLS = (*[OPEN_ACL] * 8, READ_ACL, CREATOR_ALL_ACL, (), (Acl(31, "nobody", "knows"),))
ODD_PATHS = ("/", "/a/", "/a//b", "/./a", "/a/../b", "/with\0zero", "/zookeeper")


def random_path(random):
    if random.random() < 0.04:
        return random.choice(ODD_PATHS)
    return "/" + "/".join(random.choice(NAMES) for _ in range(random.choice((1, 1, 1, 1, 2, 2, 3))))


def random_version(random):
    return random.choice((-1, -1, 0, 0, 1, 2))


def random_data(random):
    return random.choice((b"", b"x", b"some data", bytes(1_000)))


def random_write(random):
    path = random_path(random)
    return random.choice((
        lambda: Create(path, random_data(random), random.choice(list(CreateMode)), random.choice(ACLS)),
        lambda: Create(path, random_data(random)),
        lambda: Create(path, random_data(random)),
        lambda: SetData(path, random_data(random)),
        lambda: Delete(path, random_version(random)),
        lambda: SetData(path, random_data(random), random_version(random)),
    ))()  # fmt: skip


def random_operation(random):
    path = random_path(random)
    watch = random.random() < 0.8
    kind = random.random()
    if kind < 0.35:
        return random_write(random)
    if kind < 0.45:
        return Multi([random_part(random) for _ in range(random.choice((0, 1, 1, 2, 2, 4)))])
    return random.choice((
        lambda: Exists(path, watch),
        lambda: GetData(path, watch),
        lambda: GetChildren(path, watch),
        lambda: GetAcl(path),
        lambda: SetAcl(path, random.choice(ACLS), random_version(random)),
        lambda: Sync(path),
    ))()  # fmt: skip


def random_part(random):
    return Check(random_path(random), random_version(random)) if random.random() < 0.3 else random_write(random)


class Story:
    """Clients that take turns, and the results that they saw. The results leave out what differs between servers: times
    and absolute zxids."""

    def __init__(self, clients, base_zxid):
        self.clients = clients
        self.base_zxid = base_zxid
        self.seen = []
        self.owners = {0: 0}
        for number, client in enumerate(clients):
            client.on_watch(lambda event, number=number: self.seen.append((number, event)))

    async def do(self, number, operation):
        """Runs one operation. Then every client reads, so that it receives its events first."""
        (result,) = await self.clients[number].submit([operation])
        for each in self.clients:
            await each.submit([Exists("/")])
        # The events of one operation can reach the clients in any order.
        events, self.seen = sorted(map(repr, self.seen)), []
        return number, operation, self.plain(result), events

    def plain(self, result):
        return result.code.name, self.value(result.value)

    def value(self, value):
        match value:
            case Created(path, stat):
                return path, self.stat(stat)
            case Stat():
                return self.stat(value)
            case (list() as entries, Stat() as stat):
                return sorted(entries), self.stat(stat)
            case (bytes() as data, Stat() as stat):
                return data, self.stat(stat)
            case list():
                return [self.plain(each) for each in value]
        return value

    def stat(self, stat):
        base = self.base_zxid
        owner = self.owners.setdefault(stat.ephemeral_owner, len(self.owners))
        return stat._replace(
            czxid=max(stat.czxid - base, 0), mzxid=max(stat.mzxid - base, 0), pzxid=max(stat.pzxid - base, 0),
            ctime_ms=0, mtime_ms=0, ephemeral_owner=owner,
        )  # fmt: skip


async def tell(story, random, count):
    """Runs `count` random operations, and returns their results. From time to time, the session of a client ends and
    another session begins."""
    told = []
    for _ in range(count):
        number = random.randrange(len(story.clients))
        if random.random() < 0.02:
            client = story.clients[number]
            await client.close()
            await client.start(20_000)
        told.append(await story.do(number, random_operation(random)))
    for client in story.clients:
        await client.close()
    return told


async def start_all(*clients):
    for client in clients:  # one after another, because each session uses up a zxid
        await client.start(20_000)
    (result,) = await clients[0].submit([Create("/base")])
    (_,) = await clients[0].submit([Delete("/base")])
    return result.value.stat.czxid


def run(coroutine, limit_s=100):
    async def limited():
        async with asyncio.timeout(limit_s):
            return await coroutine

    return asyncio.run(limited())
