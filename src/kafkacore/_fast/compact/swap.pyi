"""Native only: see swap.pxd."""
