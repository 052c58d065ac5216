"""Native only: see batch.pxd."""
