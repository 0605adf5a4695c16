"""A terminal's output as plain text, without escape sequences: what agents read (`stream`)."""
