"""For all tests: what a program is started with."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl+C, and so would every program that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
