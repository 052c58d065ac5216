"""Why a connection could not be opened."""

from __future__ import annotations

import os


def why_unreachable(error: Exception) -> str:
    """Returns the reason why a connection failed. For an error of the operating system, returns the system's own text,
    because asyncio has replaced it by the text of a Python call."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or "timed out"
