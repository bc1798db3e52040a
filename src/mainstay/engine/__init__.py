"""The composition root: wires names to policies, guards, stores and sinks; builds from config."""
