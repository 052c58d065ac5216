"""A finished Arrow record batch."""

from typing import Any

class ArrowRows:
    """One Arrow record batch: a struct array. `pyarrow.record_batch(rows)` takes over the array without a copy.

    The array can be exported only once. The Arrow PyCapsule interface allows this restriction.
    """

    num_rows: int
    nbytes: int
    first_offset: int
    last_offset: int
    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[Any, Any]: ...
    def __arrow_c_schema__(self) -> Any: ...
