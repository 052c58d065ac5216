"""Native only: see compact_batch.pxd."""
