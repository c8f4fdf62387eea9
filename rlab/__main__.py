"""`python -m rlab` is `rlab`."""

from rlab.cli import main

if __name__ == "__main__":  # not in the workers, which import what started them
    main()
