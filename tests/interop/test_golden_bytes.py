"""Ours against Apache Kafka's own serializers: the same bytes, the same values, every message in every version.

`ci/golden` has Kafka fill and write each message; here its bytes are decoded, compared with Kafka's JSON rendering, and
encoded again.
"""

import base64
import json
from collections import defaultdict

import pytest

from golden import RELEASES, golden_file
from kafkacore._fast.schema import tables
from kafkacore.protocol.messages import message_class
from kafkacore.protocol.uuid import Uuid

# 3.9 tells a coordinator's keys apart by version; 4.3 gives each a message of its own, at version 0.
KEYS_OF_3_9 = {"OffsetCommitKey": {0: "LegacyOffsetCommitKey"}}
# Share groups were early access in 3.9: 4.3 changed these at the same version.
CHANGED_SINCE_3_9 = {"ReadShareGroupStateSummaryResponse", "ShareGroupMetadataValue"}


KNOWN = frozenset(tables.names())


@pytest.fixture(scope="module")
def golden():
    """Golden rows by release and message."""
    rows = defaultdict(list)
    for release in RELEASES:
        with golden_file(release, "Golden").open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                rows[release, our_name(row["message"])].append(row)
    return rows


def our_name(name):
    """Kafka's classes of requests, responses and headers have `Data` behind the table's name."""
    return name if name in KNOWN else name.removesuffix("Data")


def plain(name):
    return name.replace("_", "").lower()


def value_of(rendered, ours):
    """Kafka's JSON rendering as the Python value that `ours` should be."""
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
    """Fields whose values are not what Kafka's JSON says; it leaves out tagged fields at their default."""
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
    """Our message and version for a golden row's; None when 4.3 has changed a version that 3.9 had marked unstable."""
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
def test_golden_bytes_are_read_and_written_as_kafka_does(golden, release, name):
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
        # Where 4.3 rules a version that 3.9 has too, the bytes are the same but fields may have other names.
        if tables.message(ours).table(version) == table:
            assert differences(row["json"], decoded) == [], where
