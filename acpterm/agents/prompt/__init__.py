"""`acpterm prompt`: a headless ACP client, which runs one turn of one agent for a script or a user.

`run` starts and ends everything. `acp_client` exchanges messages with the agent, and passes what
the agent reports on to a printer.
"""
