"""Numbers on a command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Final

INT_MAX: Final = 0x7FFFFFFF


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Returns a `type` for argparse: an integer from `least` to `most`."""
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number {limits}")
        return number

    return parse


def positive_number(text: str) -> float:
    """A `type` for argparse: a finite number above 0, which may have a fraction."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return number
