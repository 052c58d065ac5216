"""`python -m benchmarks.controller`, see costs.py."""

from benchmarks.controller.costs import main

if __name__ == "__main__":
    main()
