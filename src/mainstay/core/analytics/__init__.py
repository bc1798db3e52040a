"""Figures from events: counts, quantiles, rates, rankings and alert rules."""
