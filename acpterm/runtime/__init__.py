"""What every process of acpterm needs, host or client: stdio, logs, signals, threads."""
