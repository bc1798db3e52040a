"""`mainstay demo`: a service that fails, some hundred calls to it, and their outcome."""
