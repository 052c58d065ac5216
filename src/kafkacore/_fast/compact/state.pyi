"""Native code only. state.pxd describes it."""
