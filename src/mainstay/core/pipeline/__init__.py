"""Runs of pipelines: their record, the two ledgers, governance of data sets, and their rules."""
