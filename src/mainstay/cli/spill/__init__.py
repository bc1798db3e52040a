"""`mainstay spill`: events that wait on disk, and sealing those that this user's key has not."""
