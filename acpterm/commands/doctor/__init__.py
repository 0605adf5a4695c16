"""`acpterm doctor`: checks this machine and acpterm's setup, and changes nothing."""
