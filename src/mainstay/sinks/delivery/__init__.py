"""How events reach a slow or unavailable receiver: buffer, backlog, spill files."""
