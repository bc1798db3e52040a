"""`mainstay audit`: tail, verify, replay, whatif, stats, keygen, and their charts."""
