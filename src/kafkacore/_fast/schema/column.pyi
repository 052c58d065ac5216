class Columns:
    """The columns of one call; made by a RowCodec."""
