"""`acpterm doctor`: checks this machine and acpterm's setup, and changes nothing.

- `runner`: runs all checks concurrently. `check`: the result of one check.
- `paths`: settings, sockets, logs, recordings, and the daemon.
- `probes`: creates a terminal, an emulator and a control group as a trial.
- `limits`: tests which resource limits of terminals' programs work.
- `programs`: the shell and systemd. `providers`: what isolates agents' commands, and other hosts.
- `system`: the operating system, Python, PTYs, this process's limits, locale, TERM.
- `extras`: packages that optional features need.
"""

from acpterm.client.user.doctor.check import CheckResult
from acpterm.client.user.doctor.runner import examine

__all__ = ["CheckResult", "examine"]
