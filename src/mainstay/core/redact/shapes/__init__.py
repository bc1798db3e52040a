"""Shapes of secrets without a name, as expressions; patterns.py has the table of them."""
