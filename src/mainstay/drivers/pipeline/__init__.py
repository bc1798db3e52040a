"""Runs of pipelines: stages are called, gated and recorded; what follows is carried over."""
