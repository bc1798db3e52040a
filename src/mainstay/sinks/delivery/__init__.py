"""How events reach a slow or absent receiver: buffer, backlog, spill file."""
