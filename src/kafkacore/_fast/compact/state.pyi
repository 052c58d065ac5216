"""Native only: see state.pxd."""
