"""Secrets taken out of whatever a person or a log can read."""
