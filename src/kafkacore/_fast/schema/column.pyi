class Columns:
    """The columns of one call. A RowCodec creates this object."""
