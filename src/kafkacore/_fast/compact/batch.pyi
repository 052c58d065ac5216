"""Native code only. batch.pxd describes it."""
