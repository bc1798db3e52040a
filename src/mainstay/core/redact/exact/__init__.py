"""Secrets that are known by their value, and hidden in any notation: what CI systems mask."""
