"""Reads Arrow record batches of other libraries natively."""

from typing import Any

class ArrowInput:
    num_rows: int
    def __init__(self, columns: Any) -> None: ...
