from typing_extensions import Buffer

def replaced(data: Buffer, *, escaped: bool = False) -> bytes:
    """The text that `put_text` writes for the bytes."""
