"""Native only: see old_messages.pxd."""
