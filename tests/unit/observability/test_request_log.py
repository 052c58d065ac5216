"""The request log shows requests without secrets."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafkacore.network.request import RequestContext
from kafkacore.observability import request_log
from kafkacore.protocol.messages import (
    AlterConfigsRequest,
    AlterUserScramCredentialsRequest,
    EnvelopeRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
)

TOPIC, BROKER, LOGGER, OTHER = 2, 4, 8, 99


def logged(caplog: Any, api_key: int, version: int, request: Any) -> str:
    with caplog.at_level(logging.DEBUG, "kafka.request.logger"):
        request_log.log(RequestContext(api_key, version, 0, "me", "PLAINTEXT", "h"), request, b"12345")
    text: str = caplog.text
    assert "5 bytes" in text
    return text


@pytest.mark.parametrize("legacy", [False, True])
def test_settings_are_shown_except_secrets_and_unknown_ones(caplog: Any, legacy: bool) -> None:
    made: Any = AlterConfigsRequest if legacy else IncrementalAlterConfigsRequest
    request = made(
        resources=[
            made.AlterConfigsResource(
                resource_type=kind, resource_name="x", configs=[made.AlterableConfig(name=name, value=value)]
            )
            for kind, name, value in (
                (TOPIC, "retention.ms", "seen-1"),
                (TOPIC, "unknown", "secret"),
                (BROKER, "log.retention.ms", "seen-2"),
                (BROKER, "ssl.key.password", "secret"),
                (BROKER, "listener.name.x.ssl.key.password", "secret"),
                (LOGGER, "any.logger", "seen-3"),
                (OTHER, "retention.ms", "secret"),
            )
        ]
    )
    text = logged(caplog, 33 if legacy else 44, 1, request)
    assert "secret" not in text
    assert all(f"seen-{number}" in text for number in (1, 2, 3))
    # The handler receives the request with the secrets.
    assert [each.configs[0].value for each in request.resources].count("secret") == 4


def test_passwords_and_the_content_of_envelopes_are_not_shown(caplog: Any) -> None:
    made = AlterUserScramCredentialsRequest
    user = made.ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"secret", salted_password=b"secret"
    )
    assert "alice" in logged(caplog, 51, 0, made(upsertions=[user]))
    envelope = EnvelopeRequest(request_data=b"secret", request_principal=b"", client_host_address=b"")
    assert "EnvelopeRequest of 6 bytes" in logged(caplog, 58, 0, envelope)
    assert "secret" not in caplog.text


def test_a_long_request_is_cut(caplog: Any) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="n" * 200) for _ in range(20)]
    text = logged(caplog, 3, 1, MetadataRequest(topics=topics))
    assert "..." in text and len(text) < 3000
