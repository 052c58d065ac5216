"""Native code only. swap.pxd describes it."""
