"""`mainstay config` and `mainstay policies`."""
