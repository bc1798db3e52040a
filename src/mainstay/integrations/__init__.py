"""Other libraries and protocols: one file for each, imported when it is used.

An integration is handed the engine or policy it works for, and never imports one.
"""
