"""Readable dialogues with the group coordinator. Each file in `group/` contains one dialogue, called a story.

A line that begins with `>` is an event. Below it are the records that it appends, with their offsets, and the answers
with their receivers. To write the answers of a new or changed story, run pytest with KAFKACORE_WRITE_TRANSCRIPTS=1 and
read the difference. Members have names. The transcript shows the first id of a member as `name#1`, and the next id of
the same member as `name#2`.

    > join NAME [static] [old] [anew] [PROTOCOL...] [of=TOPICS]   `static`: the instance id is NAME; `old`: a version
                                  that joins without a member id; `anew`: it has forgotten its id
    > sync NAME [NAME=ASSIGNMENT...]
    > heartbeat NAME
    > leave NAME...
    > commit NAME|- TOPIC:PARTITION=OFFSET...   -: from outside the group
    > fetch NAME [stable]         all offsets of the group
    > delete                      the group
    > forget TOPIC:PARTITION...   OffsetDelete
    > describe
    > wait MS
    > hold                        appends stay open from here on
    > committed | > fails ERROR | > late      commits the oldest open append, fails all, or times the oldest out
    > restart                     a new coordinator loads the log
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from group_log import Client, GroupLog
from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.effects import GroupRecord
from kafkacore.coordinator.group.settings import GroupSettings
from kafkacore.protocol.errors import ErrorCode

STORIES = sorted((Path(__file__).parent / "group").glob("*.txt"))
OLD_VERSION, NEW_VERSION = 3, 9
UUID_LENGTH = 37


class Story:
    def __init__(self) -> None:
        self.log = GroupLog(GroupSettings(initial_rebalance_delay_ms=3_000), now_ms=0)
        self.ids: dict[str, str] = {}  # by name: the latest member id
        self.generations: dict[str, int] = {}
        self.names: dict[str, str] = {}  # by member id: the name in the transcript
        self.waiters: dict[int, str] = {}
        self.static: set[str] = set()
        self.asked = self.written = 0
        self.lines: list[str] = []

    def run(self, line: str) -> list[str]:
        self.lines = []
        what, *words = line.split()
        getattr(self, f"do_{what}")(*words)
        for key, value in self.log.records[self.written :]:
            self.lines.append(f"  {self.written} {self.record((key, value))}")
            self.written += 1
        answers, self.log.answers = self.log.answers, {}
        for number, answer in answers.items():
            self.lines.append(f"  {self.answer(self.waiters.pop(number), answer)}")
        return self.lines

    def waiter(self, name: str, kind: str) -> int:
        self.asked += 1
        self.waiters[self.asked] = f"{name} {kind}"
        return self.asked

    # --- events ---

    def do_join(self, name: str, *words: str) -> None:
        flags = {each for each in words if each in ("static", "old", "anew")}
        topics = next((each[3:].split(",") for each in words if each.startswith("of=")), ["t"])
        offered = [each for each in words if each not in flags and "=" not in each] or ["range"]
        subscription = len(topics).to_bytes(4, "big") + b"".join(
            len(each).to_bytes(2, "big") + each.encode() for each in topics
        )
        if "static" in flags:
            self.static.add(name)
        self.log.join(
            self.waiter(name, "joins"),
            member="" if "anew" in flags else self.ids.get(name, ""),
            instance=name if name in self.static else None,
            protocols=[(each, b"\0\0" + subscription + b"\xff\xff\xff\xff") for each in offered],
            client=Client(name, OLD_VERSION if "old" in flags else NEW_VERSION),
        )

    def do_sync(self, name: str, *words: str) -> None:
        given = dict(each.split("=", 1) for each in words)
        assignments = {self.ids[member]: data.encode() for member, data in given.items()}
        instance = name if name in self.static else None
        self.log.sync(
            self.waiter(name, "syncs"), self.ids[name], self.generations[name], assignments, instance=instance
        )

    def do_heartbeat(self, name: str) -> None:
        instance = name if name in self.static else None
        error = self.log.heartbeat(self.ids[name], self.generations[name], instance=instance)
        self.lines.append(f"  {name}: {ErrorCode(error).name}")

    def do_leave(self, *names: str) -> None:
        self.log.leave(self.waiter(names[0], "leaves"), *((self.ids[name], None) for name in names))

    def do_commit(self, name: str, *words: str) -> None:
        offsets = {}
        for word in words:
            partition, offset = word.split("=")
            topic, index = partition.split(":")
            offsets[topic, int(index)] = int(offset)
        outside = name == "-"
        self.log.commit_offsets(
            self.waiter(name, "commits"),
            offsets,
            member="" if outside else self.ids[name],
            generation=-1 if outside else self.generations[name],
            instance=name if name in self.static else None,
        )

    def do_fetch(self, name: str, *words: str) -> None:
        self.log.fetch(self.waiter(name, "fetches"), require_stable="stable" in words)

    def do_delete(self) -> None:
        self.log.delete_groups(self.waiter("-", "deletes"), "g")

    def do_forget(self, *words: str) -> None:
        topics: dict[str, list[int]] = {}
        for word in words:
            topic, index = word.split(":")
            topics.setdefault(topic, []).append(int(index))
        self.log.delete_offsets(self.waiter("-", "forgets"), topics)

    def do_describe(self) -> None:
        told = self.log.describe()
        if told.error_code:
            self.lines.append(f"  {told.group_state}: {ErrorCode(told.error_code).name}")
            return
        members = ", ".join(
            f"{self.name(each.member_id)} has {each.member_assignment.decode() or 'nothing'}" for each in told.members
        )
        protocol = "/".join(each for each in (told.protocol_type, told.protocol_data) if each) or "no protocol"
        self.lines.append(f"  {told.group_state}, {protocol}{': ' if members else ''}{members}")

    def do_wait(self, ms: str) -> None:
        self.log.wait(int(ms))

    def do_hold(self) -> None:
        self.log.hold = True

    def do_committed(self) -> None:
        self.log.commit()

    def do_fails(self, error: str) -> None:
        self.log.fail(getattr(ErrorCode, error))

    def do_late(self) -> None:
        self.log.time_out()

    def do_restart(self) -> None:
        hold, self.waiters = self.log.hold, {}
        self.log = self.log.restarted()
        self.log.hold = hold

    # --- output ---

    def name(self, member_id: str) -> str:
        """Returns the member's name, with the number of this id among all ids of the member."""
        if member_id not in self.names and len(member_id) > UUID_LENGTH:
            begins = member_id[:-UUID_LENGTH]
            count = sum(each.startswith(f"{begins}#") for each in self.names.values())
            self.names[member_id] = f"{begins}#{count + 1}"
        return self.names.get(member_id, member_id)

    def answer(self, asked: str, answer: Any) -> str:
        who, kind = asked.split()
        if kind == "fetches":
            offsets = [
                f"{topic.name}:{each.partition_index}={each.committed_offset}"
                for topic in answer.topics
                for each in topic.partitions
            ]
            told = " ".join(offsets) or "no offsets"
            return f"{who}: {ErrorCode(answer.error_code).name if answer.error_code else told}"
        if kind == "deletes":
            return f"{who}: {ErrorCode(answer[0].error_code).name}"
        if kind in ("commits", "forgets", "leaves") and not getattr(answer, "error_code", 0):
            parts = (
                answer.members if kind == "leaves" else [each for topic in answer.topics for each in topic.partitions]
            )
            return f"{who}: {' '.join(ErrorCode(each.error_code).name for each in parts)}"
        error = ErrorCode(answer.error_code)
        if kind == "joins":
            return f"{who}: {self.joined(who, answer, error)}"
        if kind == "syncs" and error == ErrorCode.NONE:
            return f"{who}: has {answer.assignment.decode() or 'nothing'}"
        return f"{who}: {error.name}"

    def joined(self, who: str, answer: Any, error: ErrorCode) -> str:
        if error in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE):
            self.ids[who] = answer.member_id
        if error != ErrorCode.NONE:
            shown = f" as {self.name(answer.member_id)}" if answer.member_id else ""
            return f"{error.name}{shown}"
        self.generations[who] = answer.generation_id
        told = f"{self.name(answer.member_id)} in generation {answer.generation_id} by {answer.protocol_name}"
        if answer.leader != answer.member_id:
            return f"{told}, led by {self.name(answer.leader)}"
        skips = ", need not assign" if answer.skip_assignment else ""
        return f"{told}, leads {', '.join(self.name(each.member_id) for each in answer.members)}{skips}"

    def record(self, record: GroupRecord) -> str:
        key, value = record
        if records.kind_of(key) == records.OFFSET_COMMIT:
            group, topic, index = records.read_offset_key(key)
            told = "deleted" if value is None else f"is {records.read_offset(value).offset}"
            return f"{group}: offset {topic}:{index} {told}"
        group = records.read_group_key(key)
        if value is None:
            return f"{group}: deleted"
        read = records.read_group(value)
        if not read.members:
            return f"{group}: empty, generation {read.generation}"
        members = ", ".join(
            f"{self.name(each.member_id)} has {each.assignment.decode() or 'nothing'}" for each in read.members
        )
        return (
            f"{group}: generation {read.generation}, {read.protocol}, led by {self.name(read.leader or '')}: {members}"
        )


def run(text: str) -> str:
    story, told = Story(), []
    for line in text.splitlines():
        if line.startswith(">"):
            told += [line, *story.run(line[1:])]
        elif not line.startswith("  "):
            told.append(line)
    return "\n".join(told) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_group_acts_as_in_its_story(path: Path) -> None:
    told = run(path.read_text())
    if os.environ.get("KAFKACORE_WRITE_TRANSCRIPTS"):
        path.write_text(told)
    assert told == path.read_text()
