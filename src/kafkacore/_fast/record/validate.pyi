"""LogValidator's rules without the GIL; see `validator` for what Python calls."""
