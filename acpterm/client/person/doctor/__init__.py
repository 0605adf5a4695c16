"""What this machine offers to terminals, and what is missing: looked at, never changed."""

from acpterm.client.person.doctor.examine import examine
from acpterm.client.person.doctor.finding import Finding

__all__ = ["Finding", "examine"]
