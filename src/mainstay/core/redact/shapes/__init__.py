"""Shapes of secrets without a name, as expressions; `core.redact.patterns` has their table."""
