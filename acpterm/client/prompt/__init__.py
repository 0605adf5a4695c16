"""The headless client: one agent, one turn, for a shell, a script or a CI job."""
