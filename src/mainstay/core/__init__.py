"""The deciding core: values and pure functions, no clock and no I/O.

Rules of the room: no clock, no randomness, no I/O, no threads, locks, async or logging. What a
decision needs comes in as an argument or as the answer to a question.
"""
