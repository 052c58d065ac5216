"""The metadata shell: the state of the files at an offset or before damage, its commands, its patterns, and the forms
in which it shows values."""

import io
import json

import pytest

from kafkacore.inspection.metadata_shell import files, interactive, tree
from kafkacore.inspection.metadata_shell.commands import Session, in_columns, run
from kafkacore.inspection.metadata_shell.nodes import java_time
from kafkacore.inspection.report import Report
from kafkacore.storage.errors import LogDirectoryError
from metadata_files import every_kind, feature, partition, quota, topic, write_segment, write_snapshot


class Shell:
    """A session of the shell that stores its output."""

    def __init__(self, image, *, as_json=False):
        self.out, self.err = io.BytesIO(), io.StringIO()
        self.session = Session(lambda: tree.root(image), Report(self.out, self.err, as_json=as_json))

    def run(self, *words):
        self.out.seek(0)
        self.out.truncate()
        run(self.session, words, interactive=True)
        return self.out.getvalue().decode().splitlines()


def names(image):
    return [each.name for each in image.topics()]


@pytest.fixture
def metadata(tmp_path):
    """Makes a snapshot of the offsets below 10, and log segments with offsets before and after 10. Each topic comes
    into existence at the offset of the batch that creates it."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    first = [None, [feature()], *[[topic(f"t{number}", number), partition(number)] for number in (1, 2, 3, 4)]]
    write_segment(directory, 0, first)  # this segment ends at offset 9
    write_snapshot(directory, 10, [each for batch in first if batch for each in batch])
    later = [[topic(f"t{number}", number), partition(number)] for number in (5, 6)]
    write_segment(directory, 10, [*later, None])
    return directory


# --- the files that the image comes from ----------------------------------------------------------------------------


def test_state_is_the_newest_when_no_offset_is_asked_for(metadata):
    image, findings = files.load(str(metadata.parent))
    assert (names(image), image.offset) == ([f"t{number}" for number in range(1, 7)], 14)
    assert findings.problems == findings.remarks == []


@pytest.mark.parametrize(
    ("offset", "topics", "shown"), [(0, 0, 0), (1, 0, 1), (3, 1, 3), (9, 4, 9), (11, 5, 11), (13, 6, 13), (14, 6, 14)]
)
def test_state_at_an_offset_is_that_after_its_batch(metadata, offset, topics, shown):
    image, findings = files.load(str(metadata), offset)
    assert (len(names(image)), image.offset) == (topics, shown)
    assert findings.problems == findings.remarks == []


def test_state_before_a_batch_is_shown_when_the_offset_is_inside_it(metadata):
    image, findings = files.load(str(metadata), 12)
    assert (len(names(image)), image.offset) == (5, 11)
    assert findings.remarks == [
        "offset 12 is inside the batch from 12 to 13, which takes effect as a whole: the state at offset 11 is shown"
    ]


def test_offset_is_refused_when_the_log_does_not_reach_it(metadata):
    with pytest.raises(files.UnreachableOffsetError, match="the metadata log ends at offset 14"):
        files.load(str(metadata), 15)


def test_offset_is_refused_when_only_later_states_are_kept(metadata):
    (metadata / "00000000000000000000.log").unlink()
    assert len(names(files.load(str(metadata), 9)[0])) == 4
    with pytest.raises(
        files.UnreachableOffsetError, match="offset 8 no longer exists: the oldest available state is at 9"
    ):
        files.load(str(metadata), 8)


def test_directory_is_refused_when_it_holds_no_metadata(tmp_path):
    with pytest.raises(LogDirectoryError, match="neither a snapshot nor a segment"):
        files.load(str(tmp_path))


def test_file_is_refused_when_it_is_no_part_of_a_metadata_log(tmp_path):
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(LogDirectoryError, match=r"meta\.properties: contains no whole batch"):
        files.load(str(tmp_path / "meta.properties"))


def test_torn_tail_is_a_remark_when_it_ends_the_log(metadata):
    path = metadata / "00000000000000000010.log"
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    image, findings = files.load(str(metadata))
    assert (len(names(image)), image.offset, findings.problems) == (6, 13, [])
    [remark] = findings.remarks
    assert str(path) in remark
    assert "offset 14: the last " in remark


@pytest.mark.parametrize("damaged", [70, 16], ids=["content", "magic"])
def test_state_before_a_corrupt_batch_is_shown_when_the_log_is_damaged(metadata, damaged):
    path, places = write_segment(
        metadata, 10, [[topic(f"t{number}", number), partition(number)] for number in (5, 6, 7)]
    )
    offset, position = places[1]
    data = bytearray(path.read_bytes())
    data[position + damaged] ^= 1
    path.write_bytes(data)
    image, findings = files.load(str(metadata))
    assert (len(names(image)), image.offset) == (5, 11)
    [problem] = findings.problems
    assert problem.startswith(f"{path}: byte {position}: offset {offset}: ")
    assert problem.endswith("; the state before it is shown, at offset 11")


def test_state_before_an_unreadable_record_is_shown_when_the_log_has_one(metadata):
    write_segment(metadata, 10, [[partition(99)], [topic("t5", 5)]])
    image, findings = files.load(str(metadata))
    assert (len(names(image)), image.offset) == (4, 9)
    [problem] = findings.problems
    assert "byte 0: offset 10: " in problem
    assert "is about a topic that does not exist" in problem


def test_gap_in_the_log_ends_the_state_when_a_segment_is_missing(metadata):
    write_segment(metadata, 20, [[topic("t9", 9)]])
    image, findings = files.load(str(metadata))
    assert (len(names(image)), image.offset) == (6, 14)
    assert "offset 20: the records from offset 15 on are missing" in findings.problems[0]


def damage(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def test_log_replaces_a_snapshot_when_that_is_damaged(metadata):
    [path] = metadata.glob("*.checkpoint")
    damage(path, path.stat().st_size // 2)
    image, findings = files.load(str(metadata))
    assert len(names(image)) == 6
    [problem] = findings.problems
    assert problem.startswith(f"{path}: byte ")


def test_snapshot_shows_what_is_before_its_damage_when_nothing_replaces_it(tmp_path):
    batches = [feature(), *[topic(f"t{number}", number) for number in range(1, 100)]]
    path = write_snapshot(tmp_path, 100, batches)
    path.write_bytes(path.read_bytes()[:-10])
    image, findings = files.load(str(path))
    assert len(names(image)) == 99
    assert "bytes are not a whole batch" in findings.problems[0]
    damage(path, 61 + 300)
    image, findings = files.load(str(tmp_path))
    assert names(image) == []
    assert "no other snapshot or log can replace the snapshot" in findings.problems[-1]


def test_snapshot_is_incomplete_when_its_footer_is_missing(tmp_path):
    path = write_snapshot(tmp_path, 5, [feature(), topic("a", 1)])
    whole = path.read_bytes()
    footer_bytes = 12 + int.from_bytes(whole[whole.rindex(b"\0\0\0\0\0\0\0\5", 0, -30) + 8 :][:4], "big")
    path.write_bytes(whole[:-footer_bytes])
    image, findings = files.load(str(path))
    assert names(image) == ["a"]
    assert "does not end with the footer of a snapshot" in findings.problems[0]


def test_load_tries_again_when_a_running_node_deletes_a_file(metadata, monkeypatch):
    listed = files.os.listdir
    calls = []

    def stale(path):
        calls.append(path)
        return [*listed(path), "00000000000000000012-0000000007.checkpoint"] if len(calls) == 1 else listed(path)

    monkeypatch.setattr(files.os, "listdir", stale)
    image, findings = files.load(str(metadata))
    assert (len(names(image)), len(calls), findings.problems) == (6, 2, [])


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def image(tmp_path):
    return files.load(str(write_snapshot(tmp_path, 100, every_kind())))[0]


def test_relative_paths_begin_in_the_working_directory(image):
    shell = Shell(image)
    assert shell.run("cd", "/image/topics/byName/foo") == []
    assert shell.run("pwd") == ["/image/topics/byName/foo"]
    assert shell.run("cat", "name", "../_b.r/./name") == ["foo", "_b.r"]
    assert shell.run("cd", "../..") == []
    assert shell.run("ls") == ["byId", "byName"]
    assert shell.run("cd", "byName/foo/name") == ["cd: byName/foo/name: not a directory."]
    assert shell.run("cd") == []
    assert shell.run("pwd") == ["/"]


def test_find_shows_matched_paths_when_the_path_is_a_pattern(image):
    shell = Shell(image)
    assert shell.run("find", "/image/scram/*56") == ["/image/scram/SCRAM-SHA-256", "/image/scram/SCRAM-SHA-256/alice"]
    assert shell.run("ls", "/image/{acls,scram}") == [
        "acls:", "byId", "", "scram:", "SCRAM-SHA-256", "SCRAM-SHA-512",
    ]  # fmt: skip
    assert shell.run("ls", "/image/{acls,{") == ["ls: /image/{acls,{: no such file or directory."]


def test_json_has_the_content_of_each_file(image):
    shell = Shell(image, as_json=True)
    lines = [json.loads(line) for line in shell.run("tree", "/image/cluster/brokers")]
    assert [line["path"] for line in lines] == ["/image/cluster/brokers/1", "/image/cluster/brokers/2"]
    broker = lines[0]["value"]
    assert (broker["rack"], broker["fenced"], broker["supportedFeatures"]["x"]) == ("r1", False, [1, 32767])
    assert broker["listeners"][1] == {
        "listenerName": "PLAINTEXT", "securityProtocol": "PLAINTEXT", "host": "h", "port": 9,
    }  # fmt: skip
    assert json.loads(shell.run("cat", "/image/topics/byName/foo/0")[0])["value"]["elr"] == [2]
    assert json.loads(shell.run("ls", "/image/topics")[0])["children"] == ["byId", "byName"]
    assert json.loads(shell.run("cat", "/nothing")[0])["problem"] == "No such file or directory."


def test_quota_of_a_default_has_a_name_without_parentheses(tmp_path):
    records = [
        feature(),
        quota("producer_byte_rate", 2.0, user=None),
        quota("producer_byte_rate", 3.0, client_id="c", user=None),
    ]
    shell = Shell(files.load(str(write_snapshot(tmp_path, 3, records)))[0])
    assert shell.run("ls", "/image/clientQuotas") == ["clientId(c)_user", "user"]
    assert shell.run("cat", "/image/clientQuotas/user/producer_byte_rate") == ["2.0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cat",), "too few arguments"),
        (("pwd", "x"), "unrecognized arguments: 'x'"),
        (("nonsense",), "invalid choice: 'nonsense' (choose from 'cat', 'cd', 'exit',"),
        (("man", "nonsense"), "man: nonsense: unknown command"),
        (("history", "few"), "history: few: is not a number"),
    ],
)
def test_error_names_the_mistake_when_a_command_is_wrong(image, words, said):
    shell = Shell(image)
    assert shell.run(*words)[0].startswith(said)
    assert shell.session.failures == 1


def test_commands_come_from_lines_when_there_is_no_terminal(image):
    shell = Shell(image)
    cat = r"cat 'clientId(c)_user(al\(i\)ce\\)/producer_byte_rate'"
    lines = ["cd /image/clientQuotas", "", cat, 'ls "', "history 1", "exit", "pwd"]
    interactive.converse(shell.session, io.StringIO("\n".join(lines)))
    assert shell.out.getvalue().decode().splitlines() == ["1000.0", 'ls ": No closing quotation', "    3  history 1"]


@pytest.mark.parametrize(
    ("line", "word", "found"),
    [
        ("c", "c", ["cat", "cd"]),
        ("man t", "t", ["tree"]),
        ("ls im", "im", ["image/"]),
        ("cat /image/p", "/image/p", ["/image/producerIds/", "/image/provenance"]),
        ("cat /image/provenance/", "/image/provenance/", []),
        ("ls /image/topics/byName/f", "/image/topics/byName/f", ["/image/topics/byName/foo/"]),
    ],
)
def test_completion_gives_commands_and_paths(image, line, word, found):
    assert interactive.completions(Shell(image).session, line, word) == found


def test_names_are_in_as_many_columns_as_fit():
    found = [f"name{number}" for number in range(7)]
    assert list(in_columns(found, None)) == found
    assert list(in_columns(found, 22)) == ["name0  name3  name6", "name1  name4", "name2  name5"]
    assert list(in_columns(found, 3)) == found
    assert list(in_columns([], 80)) == []


# --- forms of values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z[UTC]"),
        (1_700_000_000_100, "2023-11-14T22:13:20.1Z[UTC]"),
        (1_700_000_000_000, "2023-11-14T22:13:20Z[UTC]"),
        (-1, "1969-12-31T23:59:59.999Z[UTC]"),
        (1 << 62, f"{1 << 62} ms"),
    ],
)
def test_time_has_the_form_of_java(timestamp_ms, shown):
    assert java_time(timestamp_ms) == shown
