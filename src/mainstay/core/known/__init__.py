"""What is known of failures: kinds, HTTP statuses, and tables of libraries' exceptions.

Rules of the room: exceptions are read and never changed; no library is imported to recognise one.
"""
