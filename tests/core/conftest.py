"""Hypothesis for the whole folder: no time limit on an example, since machines are shared."""

from hypothesis import settings

settings.register_profile("core", deadline=None)
settings.load_profile("core")
