"""What this machine offers to terminals, and what is missing: looked at, never changed."""

from acpterm.client.user.doctor.check import CheckResult
from acpterm.client.user.doctor.runner import examine

__all__ = ["CheckResult", "examine"]
