"""Native code only. old_messages.pxd describes it."""
