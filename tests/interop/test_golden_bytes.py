"""Our codec compared with Apache Kafka's own serializers. For every message in every version, the bytes and the values
must be the same.

`ci/golden` makes Kafka fill each message with values and write it. The test decodes the bytes, compares the values with
Kafka's JSON, and encodes them again.
"""

import base64
import json
from collections import defaultdict

import pytest

from golden import RELEASES, golden_file
from kafkacore._fast.schema import tables
from kafkacore.protocol.messages import message_class
from kafkacore.protocol.uuid import Uuid

# In 3.9, the keys of a coordinator's records differ by version. In 4.3, each key is a message of its own in version 0.
KEYS_OF_3_9 = {"OffsetCommitKey": {0: "LegacyOffsetCommitKey"}}
# In 3.9, share groups were in early access. 4.3 has changed these messages without a new version.
CHANGED_SINCE_3_9 = {"ReadShareGroupStateSummaryResponse", "ShareGroupMetadataValue"}


KNOWN = frozenset(tables.names())


@pytest.fixture(scope="module")
def golden():
    """Returns the golden rows by release and message name."""
    rows = defaultdict(list)
    for release in RELEASES:
        with golden_file(release, "Golden").open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                rows[release, our_name(row["message"])].append(row)
    return rows


def our_name(name):
    """Returns our name of a message. Kafka's classes add `Data` to the name in the table."""
    return name if name in KNOWN else name.removesuffix("Data")


def plain(name):
    return name.replace("_", "").lower()


def value_of(rendered, ours):
    """Converts Kafka's JSON to the Python value that `ours` should have."""
    if isinstance(rendered, dict):
        return ours if differences(rendered, ours) == [] else rendered
    if isinstance(rendered, list):
        if not isinstance(ours, list) or len(ours) != len(rendered):
            return rendered
        return [value_of(each, mine) for each, mine in zip(rendered, ours, strict=True)]
    if isinstance(ours, Uuid):
        return Uuid.parse(rendered)
    if isinstance(ours, bytes) and isinstance(rendered, str):
        return base64.b64decode(rendered)
    return rendered


def differences(rendered, ours):
    """Returns the fields whose values differ from Kafka's JSON. Kafka's JSON omits tagged fields with default
    values."""
    named = {plain(name): name for name in ours.FIELDS}
    found = []
    for key, value in rendered.items():
        name = named.pop(plain(key), None)
        if name is None:
            if not key.endswith("SizeInBytes"):
                found.append(f"no field for {key}")
            elif len(getattr(ours, named.pop(plain(key.removesuffix("SizeInBytes"))))) != value:
                found.append(f"{key} is not {value}")
        elif getattr(ours, name) != value_of(value, getattr(ours, name)):
            found.append(f"{name}: {getattr(ours, name)!r} is not {value!r}")
    usual = type(ours)()
    found += [f"{name} should be at its default" for name in named.values()
              if getattr(ours, name) != getattr(usual, name)]  # fmt: skip
    return found


def target(release, name, version):
    """Returns our message class and the version for a golden row. Returns None if the version was unstable in 3.9 and
    has changed in 4.3."""
    if release == "3.9" and name in CHANGED_SINCE_3_9:
        return None
    table = tables.release_table(f"kafka-{release}", name)
    ruling = tables.message(name).table(version)
    if ruling is not None and ruling.kind == table.kind:
        early = table.unstable and version == table.versions.highest and ruling != table
        return None if early else (name, version)
    return KEYS_OF_3_9.get(name, {}).get(version, name), 0 if name.endswith("Key") else version


@pytest.mark.parametrize("name", sorted(KNOWN))
@pytest.mark.parametrize("release", RELEASES)
def test_golden_bytes_are_read_and_written_as_in_kafka(golden, release, name):
    table = tables.release_table(f"kafka-{release}", name)
    rows = golden[release, name]
    versions = {row["version"] for row in rows}
    assert versions == (set(range(table.versions.lowest, table.versions.highest + 1)) if table else set())
    for row in rows:
        found = target(release, name, row["version"])
        if found is None:
            continue
        ours, version = found
        where = f"{name} {row['version']} {row['filling']}"
        data = bytes.fromhex(row["hex"])
        decoded = message_class(ours).decode(data, version)
        assert decoded.encode(version) == data, where
        # If a version exists in both releases, our tables have the field names of 4.3. The bytes are the same, but the
        # names may differ.
        if tables.message(ours).table(version) == table:
            assert differences(row["json"], decoded) == [], where
