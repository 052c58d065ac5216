from typing_extensions import Buffer

def replaced(data: Buffer, *, escaped: bool = False) -> bytes:
    """Returns the text that `put_text` writes for these bytes."""
