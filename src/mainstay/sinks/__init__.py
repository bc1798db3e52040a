"""What listens to events. A sink is a callable of one event; some can also `flush()`."""
