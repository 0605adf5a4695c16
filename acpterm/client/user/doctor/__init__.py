"""Diagnosis of this machine and of acpterm's setup. Checks only, changes nothing."""

from acpterm.client.user.doctor.check import CheckResult
from acpterm.client.user.doctor.runner import examine

__all__ = ["CheckResult", "examine"]
