"""`mainstay config` and `mainstay policies`: check, show, schema."""
