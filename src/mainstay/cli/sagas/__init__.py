"""`mainstay sagas`: what is open and what happened, recovery, diagrams."""
