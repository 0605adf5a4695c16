"""`python -m acpterm` is `acpterm`."""

from acpterm.cli import main

main()
