"""For each quota that a node stores but does not enforce, the node logs one line."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.metadata.client_quotas import kept_key
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.server.unenforced_quotas import UnenforcedQuotas

ALICE = kept_key((("user", "alice"),), "consumer_byte_rate")
EVERYONE = kept_key((("client-id", None),), "request_percentage")


def image(*keys: tuple[Any, ...]) -> Any:
    return SimpleNamespace(kept={key: object() for key in keys})


def changed(*keys: tuple[Any, ...]) -> MetadataDelta:
    delta = MetadataDelta()
    delta.kept.update(keys)
    return delta


def test_quota_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    quotas = UnenforcedQuotas()
    quotas.apply(image(("ProducerIdsRecord",)), None)
    assert caplog.messages == []
    quotas.apply(image(ALICE), changed(ALICE))
    quotas.apply(image(ALICE), changed(ALICE))
    assert caplog.messages == [
        "client quotas are stored but not enforced by this node: consumer_byte_rate of user 'alice'"
    ]
    quotas.apply(image(ALICE, EVERYONE), changed(EVERYONE))
    assert caplog.messages[1:] == [
        "client quotas are stored but not enforced by this node: request_percentage of client-id <default>"
    ]


def test_quota_is_named_again_when_it_was_removed_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    quotas = UnenforcedQuotas()
    quotas.apply(image(ALICE), None)
    quotas.apply(image(), changed(ALICE))
    quotas.apply(image(EVERYONE), changed(EVERYONE))
    quotas.apply(image(ALICE, EVERYONE), changed(ALICE))
    assert len(caplog.messages) == 3


def test_many_quotas_make_one_line(caplog: pytest.LogCaptureFixture) -> None:
    keys = [kept_key((("user", f"u{number}"),), "producer_byte_rate") for number in range(8)]
    UnenforcedQuotas().apply(image(*keys), None)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("user 'u4', and 3 more")
