"""What this machine offers to terminals, and what is missing: looked at, never changed."""

from acpterm.client.person.doctor.finding import Finding
from acpterm.client.person.doctor.looking import examine

__all__ = ["Finding", "examine"]
