"""DescribeClientQuotas: returns the quotas that match a filter (KIP-546)."""

from __future__ import annotations

from typing import Final

from kafkacore.metadata.client_quotas import CLIENT_ID, IP, USER, Entity, client_quotas
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kafkacore.runtime.slices import Work
from kafkacore.server.context import BrokerContext

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
_MATCHES: Final = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}

Entry = DescribeClientQuotasResponse.EntryData
EntityData = DescribeClientQuotasResponse.EntityData
ValueData = DescribeClientQuotasResponse.ValueData


def handle(
    broker: BrokerContext, call: RequestContext, request: DescribeClientQuotasRequest
) -> Work[DescribeClientQuotasResponse]:
    wanted = _wanted(request)
    entries = []
    for entity, quotas in client_quotas(broker.image).items():
        if _matches(entity, wanted, strict=request.strict):
            entries.append(
                Entry(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
                )
            )
        yield
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _wanted(request: DescribeClientQuotasRequest) -> dict[str, tuple[int, str | None]]:
    """Returns the condition for each kind of entity. Raises INVALID_REQUEST, UNSUPPORTED_VERSION."""
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in request.components:
        kind, match_type, match = component.entity_type, component.match_type, component.match
        problem = None
        if not kind:
            problem = "Invalid empty entity type."
        elif kind in wanted:
            problem = f"Entity type {kind} cannot appear more than once in the filter."
        elif kind not in (USER, CLIENT_ID, IP):
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        elif match_type not in _MATCHES:
            problem = f"Unknown match type {match_type}"
        elif match_type == EXACT and match is None:
            problem = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        elif match_type != EXACT and match is not None:
            problem = f"Request specified {_MATCHES[match_type]}, but also specified a match string."
        if problem is not None:
            raise error_for(ErrorCode.INVALID_REQUEST, problem)
        wanted[kind] = match_type, match
    if IP in wanted and len(wanted) > 1:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )
    return wanted


def _matches(entity: Entity, wanted: dict[str, tuple[int, str | None]], *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(wanted):
        return False
    for kind, (match_type, match) in wanted.items():
        if kind not in names or (match_type != SPECIFIED and names[kind] != match):
            return False
    return True
