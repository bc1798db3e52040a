"""Output of the commands: plain text, JSON, tables, progress."""
