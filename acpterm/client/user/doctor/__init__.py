"""`acpterm doctor`: checks this machine and acpterm's setup, and changes nothing.

- `runner`: runs all checks concurrently. `check`: the result of one check.
- `paths`: settings, sockets, logs, recordings, and the daemon.
- `probes`: creates a terminal, an emulator and a control group as a trial.
- `programs`: the shell and systemd.
- `system`: Python, limits, locale, TERM.
"""

from acpterm.client.user.doctor.check import CheckResult
from acpterm.client.user.doctor.runner import examine

__all__ = ["CheckResult", "examine"]
