"""The life of a group, from its first member to its last."""

from group_log import GroupLog


def test_members_become_a_generation_and_get_their_assignments() -> None:
    log = GroupLog()
    members, generation = log.form(3)
    assert generation == 1
    described = log.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert {each.member_id: each.member_assignment for each in described.members} == {
        member: b"of %d" % place for place, member in enumerate(members)
    }
    assert [log.heartbeat(member, generation) for member in members] == [0, 0, 0]


def test_group_is_the_same_after_a_restart() -> None:
    log = GroupLog()
    members, generation = log.form(3)
    log.commit_offsets("c", {("t", 0): 5, ("t", 1): 7}, member=members[0], generation=generation)
    again = log.restarted()
    assert again.describe() == log.describe()
    assert again.offsets() == log.offsets() == {("t", 0): 5, ("t", 1): 7}
    assert again.heartbeat(members[1], generation) == 0


def test_group_with_silent_members_becomes_empty_and_keeps_its_offsets() -> None:
    log = GroupLog()
    members, generation = log.form(2)
    log.commit_offsets("c", {("t", 0): 5}, member=members[0], generation=generation)
    log.wait(20_000)
    assert log.describe().group_state == "Empty"
    assert log.offsets() == {("t", 0): 5}
    assert log.restarted().describe() == log.describe()
