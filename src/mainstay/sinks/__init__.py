"""What receives events: a sink is a callable of one event; some also have `flush()`."""
