from typing_extensions import Buffer

def replaced(data: Buffer, *, escaped: bool = False) -> bytes:
    """What `put_text` makes of bytes."""
