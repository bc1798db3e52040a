"""What the templates make of the commonest shapes of parameters: written by tools/wrappers.py."""
