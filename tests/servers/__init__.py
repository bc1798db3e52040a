"""Real servers for tests: started on loopback, killed for certain at the end."""
