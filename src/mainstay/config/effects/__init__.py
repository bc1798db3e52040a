"""Contracts of orchestrators and of effects, read from YAML."""
