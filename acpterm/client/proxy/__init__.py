"""The proxy between an editor and its agent, which gives the agent terminals."""
