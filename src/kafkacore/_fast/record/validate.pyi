"""LogValidator's rules without the GIL; see `validator` for the Python interface."""
