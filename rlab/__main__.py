"""`python -m rlab` is `rlab`."""

from rlab.cli import main

main()
