"""The schema code compared with a Python counterpart that reads the JSON tables independently. Both must give the same
bytes, the same values and the same refusals.

The counterpart shares no code with the package. It follows the message format in Kafka's protocol guide and in KIP-482.
"""

import base64
import json
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.protocol.errors import ProtocolError
from kafkacore.protocol.messages import message_class

TABLES = Path(__file__).parents[2] / "src/kafkacore/protocol/tables/kafka-4.3"
NUMBERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q", "float64": ">d", "bool": ">?"}
LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


class Refused(Exception):
    """The counterpart cannot decode the bytes."""


def load():
    found = {}
    for path in sorted(TABLES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            table = json.loads(line)
            if table["validVersions"] != "none":
                found[table["name"]] = table
    return found


def has(versions, version):
    if versions in (None, "none"):
        return False
    low, _, high = versions.replace("+", "-99").partition("-")
    return int(low) <= version <= int(high or low)


def versions_of(table):
    low, _, high = table["validVersions"].partition("-")
    return range(int(low), int(high or low) + 1)


TWINS = load()
NAMES = sorted(TWINS)


def structs_of(table):
    found = {each["name"]: each["fields"] for each in table.get("commonStructs", [])}

    def walk(fields):
        for field in fields:
            if "fields" in field:
                found[field["type"].removeprefix("[]")] = field["fields"]
                walk(field["fields"])

    walk(table["fields"])
    return found


class Twin:
    """A message in one version, as dicts that use the names of the tables."""

    def __init__(self, name, version):
        self.table, self.version = TWINS[name], version
        self.structs = structs_of(self.table)
        self.flexible = has(self.table.get("flexibleVersions"), version)

    def fields(self, fields):
        plain = [f for f in fields if has(f.get("versions", f.get("taggedVersions")), self.version)
                 and not has(f.get("taggedVersions"), self.version)]  # fmt: skip
        tagged = [f for f in fields if has(f.get("taggedVersions"), self.version)]
        return plain, {int(f["tag"]): f for f in tagged}

    def compact(self, field):
        return self.flexible and field.get("flexibleVersions") != "none"

    def nullable(self, field):
        return has(field.get("nullableVersions"), self.version)

    # --- writing ---

    def write(self, values, fields=None):
        fields = self.table["fields"] if fields is None else fields
        plain, tagged = self.fields(fields)
        out = b"".join(self.write_field(f, values[f["name"]]) for f in plain)
        if self.flexible:
            present = [(tag, self.write_field(f, values[f["name"]], in_tag=True)) for tag, f in sorted(tagged.items())
                       if values[f["name"]] != self.default(f)]  # fmt: skip
            out += uvarint(len(present))
            out += b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in present)
        return out

    def write_field(self, field, value, *, in_tag=False):
        kind = field["type"]
        if kind.startswith("[]"):
            if value is None:
                return b"\0" if self.compact(field) else b"\xff\xff\xff\xff"
            count = uvarint(len(value) + 1) if self.compact(field) else struct.pack(">i", len(value))
            return count + b"".join(self.write_one(field, kind[2:], each) for each in value)
        if kind in self.structs and self.nullable(field):
            if value is None:
                return b"\0" if in_tag else b"\xff"
            return b"\x01" + self.write_one(field, kind, value)
        return self.write_one(field, kind, value)

    def write_one(self, field, kind, value):
        if kind in NUMBERS:
            return struct.pack(NUMBERS[kind], value)
        if kind == "uuid":
            return value
        if kind in self.structs:
            return self.write(value, self.structs[kind])
        size = -1 if value is None else len(value.encode() if kind == "string" else value)
        long = struct.pack(">h" if kind == "string" else ">i", size)
        head = uvarint(size + 1) if self.compact(field) else long
        return head + (b"" if value is None else value.encode() if kind == "string" else value)

    def default(self, field):
        given_default, kind = field.get("default"), field["type"]
        if given_default == "null":
            return None
        if kind.startswith("[]"):
            return []
        if kind in self.structs:
            return {f["name"]: self.default(f) for f in self.structs[kind]}
        if kind == "bool":
            return given_default in (True, "true")
        if kind == "float64":
            return float(given_default or 0)
        if kind in NUMBERS:
            return int(str(given_default or 0), 0)
        return {"uuid": bytes(16), "string": given_default or ""}.get(kind, b"")

    # --- reading ---

    def read(self, data):
        values, at = self.read_struct(data, 0, self.table["fields"])
        if at != len(data):
            raise Refused("left over")
        return values

    def read_struct(self, data, at, fields):
        plain, tagged = self.fields(fields)
        values = {f["name"]: self.default(f) for f in fields}
        for field in plain:
            values[field["name"]], at = self.read_field(data, at, field)
        if self.flexible:
            count, at = read_uvarint(data, at)
            last = -1
            for _ in range(count):
                tag, at = read_uvarint(data, at)
                size, at = read_uvarint(data, at)
                if tag <= last or at + size > len(data):
                    raise Refused("tag")
                last = tag
                if tag in tagged:
                    values[tagged[tag]["name"]], end = self.read_field(data[: at + size], at, tagged[tag], in_tag=True)
                    if end != at + size:
                        raise Refused("tag size")
                else:
                    values.setdefault("unknown", {})[tag] = data[at : at + size]
                at += size
        return values, at

    def read_field(self, data, at, field, *, in_tag=False):
        kind = field["type"]
        if kind.startswith("[]"):
            count, at = self.read_size(data, at, field, "array")
            if count is None:
                return None, at
            values = []
            for _ in range(count):
                value, at = self.read_one(data, at, field, kind[2:], element=True)
                values.append(value)
            return values, at
        if kind in self.structs and self.nullable(field):
            (flag,), at = unpack(">b", data, at)
            if flag <= 0 if in_tag else flag < 0:
                return None, at
        return self.read_one(data, at, field, kind)

    def read_one(self, data, at, field, kind, *, element=False):
        if kind == "bool":
            (value,), at = unpack(">b", data, at)
            return value != 0, at
        if kind in NUMBERS:
            (value,), at = unpack(NUMBERS[kind], data, at)
            return value, at
        if kind in self.structs:
            return self.read_struct(data, at, self.structs[kind])
        size = 16
        if kind != "uuid":
            size, at = self.read_size(data, at, field, kind, element=element)
        if size is None:
            return None, at
        if at + size > len(data) or (kind == "string" and size > 0x7FFF):
            raise Refused("length")
        raw = bytes(data[at : at + size])
        try:
            return raw.decode() if kind == "string" else raw, at + size
        except UnicodeDecodeError:
            raise Refused("text") from None

    def read_size(self, data, at, field, kind, *, element=False):
        if self.compact(field):
            size, at = read_uvarint(data, at)
            size -= 1
        else:
            (size,), at = unpack(">h" if kind == "string" else ">i", data, at)
        if size == -1 and self.nullable(field) and not element:
            return None, at
        if size < 0 or (kind == "array" and size > len(data)):
            raise Refused("size")
        return size, at


def uvarint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def read_uvarint(data, at):
    value = 0
    for i in range(5):
        if at + i >= len(data):
            raise Refused("varint")
        value |= (data[at + i] & 0x7F) << (7 * i)
        if data[at + i] < 0x80:
            if value > 0xFFFFFFFF:
                raise Refused("varint")
            return value, at + i + 1
    raise Refused("varint")


def unpack(form, data, at):
    end = at + struct.calcsize(form)
    if end > len(data):
        raise Refused("short")
    return struct.unpack_from(form, data, at), end


# --- values ---


def snake(name):
    name = name.replace("KRaft", "Kraft").replace("2Pc", "_2pc")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def values_for(twin, fields):
    plain, tagged = twin.fields(fields)
    here = {f["name"] for f in [*plain, *tagged.values()]}
    return st.fixed_dictionaries(
        {f["name"]: field_values(twin, f) if f["name"] in here else st.just(twin.default(f)) for f in fields}
    )


def field_values(twin, field):
    kind = field["type"]
    one = one_value(twin, kind.removeprefix("[]"))
    made = st.lists(one, max_size=2) if kind.startswith("[]") else one
    return st.none() | made if twin.nullable(field) else made


def one_value(twin, kind):
    if kind in LIMITS:
        return st.integers(-(2 ** LIMITS[kind]), 2 ** LIMITS[kind] - 1)
    if kind in twin.structs:
        return values_for(twin, twin.structs[kind])
    return {
        "uint16": st.integers(0, 0xFFFF),
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=5),
        "bytes": st.binary(max_size=140),
        "records": st.binary(max_size=5),
    }[kind]


def as_object(twin, cls, values, fields, outer):
    made = cls()
    for field in fields:
        kind, value = field["type"].removeprefix("[]"), values[field["name"]]
        if kind in twin.structs and value is not None:
            inner = getattr(outer, kind)
            if isinstance(value, list):
                value = [as_object(twin, inner, each, twin.structs[kind], outer) for each in value]
            else:
                value = as_object(twin, inner, value, twin.structs[kind], outer)
        setattr(made, snake(field["name"]), value)
    if values.get("unknown"):
        made.unknown_tagged_fields = values["unknown"]
    return made


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=6)
def test_schema_writes_and_reads_values_like_the_twin(name, data):
    twin = Twin(name, data.draw(st.sampled_from(versions_of(TWINS[name]))))
    values = data.draw(values_for(twin, twin.table["fields"]))
    cls = message_class(name)
    raw = twin.write(values)
    value = as_object(twin, cls, values, twin.table["fields"], cls)
    assert value.encode(twin.version) == raw
    assert cls.decode(raw, twin.version) == value


@given(data=st.data())
@settings(max_examples=800)
def test_both_decode_or_both_refuse_changed_bytes(data):
    name = data.draw(st.sampled_from(NAMES))
    twin = Twin(name, data.draw(st.sampled_from(versions_of(TWINS[name]))))
    raw = bytearray(twin.write(data.draw(values_for(twin, twin.table["fields"]))))
    for _ in range(data.draw(st.integers(1, 3))):
        change = data.draw(st.sampled_from(["flip", "cut", "grow"]))
        at = data.draw(st.integers(0, max(len(raw) - 1, 0)))
        if change == "cut":
            del raw[at:]
        elif change == "grow" or not raw:
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=3))
        else:
            raw[at] = data.draw(st.integers(0, 255))
    cls = message_class(name)
    try:
        values = twin.read(bytes(raw))
    except Refused:
        with pytest.raises(ProtocolError):
            cls.decode(bytes(raw), twin.version)
        return
    ours = cls.decode(bytes(raw), twin.version)
    # Compares bytes instead of values, because a float can be NaN.
    expected = as_object(twin, cls, values, twin.table["fields"], cls)
    assert ours.encode(twin.version) == expected.encode(twin.version)


def test_twin_decodes_a_known_message():
    # An ApiVersions 3 request of the Java client 3.0, without its header.
    raw = base64.b64decode("EmFwYWNoZS1rYWZrYS1qYXZhBjMuMC4wAA==")
    assert Twin("ApiVersionsRequest", 3).read(raw) == {
        "ClientSoftwareName": "apache-kafka-java",
        "ClientSoftwareVersion": "3.0.0",
    }
