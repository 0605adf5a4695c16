"""What users may see of the sessions of agents."""
