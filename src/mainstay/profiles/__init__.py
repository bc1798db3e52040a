"""Front doors: the names of each specification document, on the one engine.

A front door holds policies, helpers and names; no logic that the engine could hold.
"""
