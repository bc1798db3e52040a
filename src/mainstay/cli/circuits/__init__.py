"""`mainstay circuits`: the table, the live view, the operator commands."""
