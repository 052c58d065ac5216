"""Native only: see compact_state.pxd."""
