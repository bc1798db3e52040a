"""`mainstay exec`: a command under policy."""
