"""`mainstay circuits`: the table, the live view, operator commands."""
