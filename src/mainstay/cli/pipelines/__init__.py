"""`mainstay pipelines`: the runs of pipelines, and resuming one."""
