"""What this machine offers to terminals, and what is missing: looked at, never changed."""

from acpterm.client.user.doctor.check import Finding
from acpterm.client.user.doctor.runner import examine

__all__ = ["Finding", "examine"]
