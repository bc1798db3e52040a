"""`mainstay inbox` and `mainstay operators`, and who acts."""
