"""The other end of ACP: the agent's process, the proxy before it, and the headless prompt."""
