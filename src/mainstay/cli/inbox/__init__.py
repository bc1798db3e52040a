"""`mainstay inbox` and `mainstay operators`: tables, actions, identity of the operator."""
