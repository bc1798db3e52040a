"""What the metrics sinks share: the catalogue of metrics, the meter, gauges, spans."""
