"""Sagas: the reducer of their log, the flow of steps and compensations, the definition."""
