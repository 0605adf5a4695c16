"""`acpterm proxy`: relays between an editor and its agent, and gives the agent terminals.

`run` starts and ends everything; `relay` decides for each message whether to pass it on, change it,
or send it to the host.

"The host's terminals" are those that acpterm runs for the agent. "The agent's own terminals" are
those that the agent runs itself, and whose output it reports in its updates.
"""
