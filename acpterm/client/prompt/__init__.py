"""The headless client, which runs one turn of one agent for a shell, a script or a CI job."""
