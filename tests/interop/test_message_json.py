"""Messages as JSON, compared with Apache Kafka's JsonConverters. `ci/golden` fills every message in every version with
values."""

import json

from golden import golden_file
from kafkacore._fast.schema import tables
from kafkacore.protocol.message_json import to_json
from kafkacore.protocol.messages import message_class

KNOWN = frozenset(tables.names())


def test_every_message_has_the_json_of_apache_kafka():
    """Both sides have the same names in the same order. The test leaves out messages with records, because Kafka's JSON
    does not contain them."""
    compared = set()
    with golden_file("4.3", "Golden").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            name = row["message"] if row["message"] in KNOWN else row["message"].removesuffix("Data")
            if "SizeInBytes" in line:
                continue
            message = message_class(name).decode(bytes.fromhex(row["hex"]), row["version"])
            assert json.dumps(to_json(message, row["version"])) == json.dumps(row["json"]), (name, row["version"])
            compared.add(name)
    assert len(compared) > 250
    assert {"GroupMetadataValue", "OffsetCommitValue", "TransactionLogValue", "RegisterBrokerRecord"} <= compared
