"""The audit log: commands of agents, decisions and exits, as JSON lines in files that are rotated.

Commands import `entry`, `reader` and `selection` only, which import neither trio nor structlog.
"""
