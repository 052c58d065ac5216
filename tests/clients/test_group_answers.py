"""Valid and invalid requests about a group, in every version. group_answers.txt contains the answers of Apache Kafka
4.3 word for word (`--peer=apache-4.3`)."""

import asyncio
from pathlib import Path

import pytest

from group_questions import RANGE, Questions
from kafkacore.protocol import messages as m
from written_answers import written

ANSWERS = Path(__file__).with_name("group_answers.txt")


async def nobody_is_there(q):
    """Sends requests about groups that do not exist, and requests that no group accepts."""
    await q.every("join of no group", lambda version: q.join(""))
    await q.every("join with a short session", lambda version: q.join("n", session_ms=5))
    await q.every("join with a session below zero", lambda version: q.join("n", session_ms=-1))
    await q.every("join without protocols", lambda version: q.join("n", protocols=()))
    await q.every("join without a type", lambda version: q.join("n", protocol_type=""))
    await q.every("join of a member that nobody knows", lambda version: q.join("m", member="who"))
    for group in ("", "n0"):
        await q.every(f"heartbeat in {group!r}", lambda version, group=group: q.heartbeat(group, "who"))
        await q.every(f"sync in {group!r}", lambda version, group=group: q.sync(group, "who", version=version))
        await q.every(
            f"leave {group!r}",
            lambda version, group=group: (
                m.LeaveGroupRequest(group_id=q.name(group), member_id="who")
                if version < 3
                else q.leave(group, ("who", None), ("", "i"))
            ),
        )
        await q.every(f"fetch of {group!r}", lambda version, group=group: q.fetch(version, group))
    await q.tell("sync without a protocol", m.SyncGroupRequest(group_id=q.name("n0"), member_id="who"), 5)
    await q.every("fetch of everything", lambda version: q.fetch(version, "n0", everything=True), range(2, 11))
    await q.every("fetch of several", lambda version: q.fetch(version, "n0", "", stable=True), range(8, 11))


async def offsets_from_outside(q):
    async def commits(what, **asked):
        await q.every(what, lambda version: q.commit(f"s{version}", version, **asked), range(2, 11))

    await commits("commit in a generation of nobody", member="m", generation=3)
    await commits("commit", topics=("t", "no"), partitions=(0, 1, 9))
    await commits("commit for an unknown topic", topics=("no",))
    await commits("commit with long metadata", metadata="x" * 5000, partitions=(0, 1))
    await commits("commit without metadata", metadata=None)
    await commits("commit of an offset below zero", offset=-7, partitions=(1,))
    await commits("commit of nothing", topics=())
    await q.every("commit in ''", lambda version: q.commit("", version), range(2, 11))
    for version in (2, 9, 10):
        for fetched in (9, 10):
            group = f"s{version}"
            await q.tell(f"fetch of {group}", q.fetch(fetched, group, everything=True), fetched)
    await q.tell("delete offsets of a simple group", q.delete_offsets("s9", t=[0, 0, 1, 9], no=[0]), 0)
    await q.tell("delete no offsets", q.delete_offsets("s9"), 0)
    await q.tell("delete offsets of ''", q.delete_offsets("", t=[0]), 0)
    await q.tell("delete offsets of nobody", q.delete_offsets("n0", t=[0, 9]), 0)


async def a_static_member(q):
    """Sends requests about a group with one static member. JoinGroup never has to wait here, because the only member is
    the one that joins."""
    for group in ("s8", "s9"):
        await q.ask(q.commit(group, 9), 9)
    first = await q.tell("join", q.join("g", instance="i1"), 9)
    # DescribeGroups shows the group only after its record is committed.
    await q.until(lambda answer: answer.groups[0].group_state != "Dead", q.describe(5, "g"), 5)
    await q.every("describe what completes", lambda version: q.describe(version, "g", "n0", "s8"))
    await q.tell("commit while it completes", q.commit("g", 9, first.member_id, 1), 9)
    await q.tell("sync with another protocol", q.sync("g", first.member_id, protocol="other"), 5)
    await q.tell("sync in another generation", q.sync("g", first.member_id, 2), 5)
    await q.tell("sync of a fenced instance", q.sync("g", "other", instance="i1"), 5)
    await q.tell("sync of an instance that nobody knows", q.sync("g", first.member_id, instance="i9"), 5)
    given = {first.member_id: b"abc", "who": b"z"}
    await q.tell("sync", q.sync("g", first.member_id, instance="i1", assignments=given), 5)
    await q.tell("sync again", q.sync("g", first.member_id), 5)
    await q.every("describe what is stable", lambda version: q.describe(version, "g"))
    for states, types in ((["nonsense"], []), ([], ["nonsense"])):
        asked = m.ListGroupsRequest(states_filter=states, types_filter=types)
        await q.tell(f"list {states} {types}", asked, 5)
    members = {"first": first}
    members["second"] = await q.tell("replaced", q.join("g", instance="i1"), 9, "c2")
    members["third"] = await q.tell("replaced by an old client", q.join("g", instance="i1"), 5, "c3")
    await q.tell("replaced with no common protocol", q.join("g", instance="i1", protocols=(("other", RANGE),)), 9)
    sticky = q.join("g", instance="i1", protocols=(("sticky", RANGE), ("range", RANGE)))
    members["fourth"] = await q.tell("replaced with another protocol", sticky, 9, "c4")
    for name, each in members.items():
        for instance in ("i1", None):
            as_whom = f"of the {name} as {instance}"
            asked = each.member_id, each.generation_id
            await q.tell(f"heartbeat {as_whom}", q.heartbeat("g", *asked, instance), 4)
            await q.tell(f"commit {as_whom}", q.commit("g", 9, *asked, instance=instance), 9)
    last = members["fourth"].member_id
    await q.tell("join as an instance that nobody knows", q.join("g", last, "i2"), 9)
    await q.tell("join as a fenced instance", q.join("g", first.member_id, "i1"), 9)
    await q.tell("join with no common protocol", q.join("g", protocols=(("other", b"x"),)), 9)
    await q.tell("join with another type", q.join("g", protocol_type="connect"), 9)
    promised = await q.tell("join of a dynamic member", q.join("g"), 9)
    await q.tell("join of a promised id as an instance", q.join("g", promised.member_id, "i5"), 9)
    await q.tell("delete offsets of what is subscribed", q.delete_offsets("g", t=[0, 9], no=[0]), 0)
    deleted = m.DeleteGroupsRequest(groups_names=[q.name(name) for name in ("g", "n0", "s9", "s8")])
    await q.tell("delete", deleted, 2)
    leaving = (first.member_id, "i1"), ("", "no"), ("who", None), ("", None), (promised.member_id, None), ("", "i1")
    await q.tell("leave", q.leave("g", *leaving), 5)
    await q.every("describe what is empty", lambda version: q.describe(version, "g"), (5, 6))
    await q.tell("commit of a member of before", q.commit("g", 9, last, 2), 9)
    await q.tell("join of a member of before", q.join("g", last), 9)
    await q.tell("commit from outside", q.commit("g", 9), 9)
    await q.tell("delete what is empty", m.DeleteGroupsRequest(groups_names=[q.name("g")]), 2)
    await q.every("describe what is gone", lambda version: q.describe(version, "g"), (5, 6))


STORIES = nobody_is_there, offsets_from_outside, a_static_member


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_broker_answers_every_version_as_apache_kafka_does(broker, topic_name, story):
    if broker.name == "apache-3.9":
        pytest.skip("the stored answers are those of 4.3, whose API versions differ")

    async def asked():
        questions = Questions(broker.bootstrap, f"{topic_name}.")
        try:
            await questions.ready()
            if story is a_static_member:
                for group in ("s8", "s9"):
                    await questions.ask(questions.commit(group, 9), 9)
            await story(questions)
        finally:
            await questions.close()
        return questions.answers

    answers = asyncio.run(asked())
    assert answers == written(ANSWERS, story, answers)
