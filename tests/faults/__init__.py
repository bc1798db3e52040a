"""Faults that tests inject from outside a process."""
