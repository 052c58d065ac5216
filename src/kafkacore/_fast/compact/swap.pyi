"""Native only: see compact_swap.pxd."""
