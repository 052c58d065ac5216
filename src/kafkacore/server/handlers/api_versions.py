"""ApiVersions: returns the APIs of this listener, the features that the node supports, and the features that the
cluster has finalized.

The response changes only when the finalized features change. A node publishes the response to the processors, which
then answer every well-formed request. This handler answers all other requests, and every request that arrives before
the node has metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final, Protocol

from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiRange
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_SINCE: Final = 3  # since this version, the client gives its name and version (KIP-511)
ZERO_LEVELS_SINCE: Final = 4  # older clients fail on a feature whose lowest level is 0 (KAFKA-17011)


class FeatureView(Protocol):
    """The members of a broker's and of a controller's context that this API needs."""

    @property
    def api_ranges(self) -> Sequence[ApiRange]: ...
    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]: ...
    @property
    def finalized_features(self) -> Mapping[str, int]: ...
    @property
    def finalized_epoch(self) -> int:
        """The metadata offset at which the finalized features last changed, or the version of `/feature` in ZooKeeper
        mode. -1 if there are no finalized features yet."""


@cache
def _software() -> re.Pattern[str]:
    """Returns the pattern of a client's name and version. It is compiled on demand, because processors answer most
    requests."""
    return re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: FeatureView, call: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.api_version >= SOFTWARE_SINCE and not (
        _software().fullmatch(request.client_software_name) and _software().fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return response(context, call.api_version)


def bodies(context: FeatureView, api_versions: Iterable[int]) -> list[bytes]:
    """Returns the encoded responses for several versions. The versions below `ZERO_LEVELS_SINCE` share one content, and
    all later versions share another."""
    older, newer = response(context, ZERO_LEVELS_SINCE - 1), response(context, ZERO_LEVELS_SINCE)
    return [(newer if version >= ZERO_LEVELS_SINCE else older).encode(version) for version in api_versions]


def response(context: FeatureView, api_version: int) -> ApiVersionsResponse:
    least_shown = 0 if api_version >= ZERO_LEVELS_SINCE else 1
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=least, max_version=most)
            for key, least, most in context.api_ranges
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, (least, most) in sorted(context.supported_features.items())
            if least >= least_shown
        ],
        finalized_features_epoch=context.finalized_epoch,
        finalized_features=[
            # The cluster finalizes a level and not a range, so both ends are that level.
            ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(context.finalized_features.items())
            if level
        ],
    )
