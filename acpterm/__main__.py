"""Run `acpterm` as `python -m acpterm`."""

from acpterm.cli import main

main()
