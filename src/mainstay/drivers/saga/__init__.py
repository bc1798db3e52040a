"""Sagas: carrying out steps and compensations, and the recovery of interrupted ones."""
