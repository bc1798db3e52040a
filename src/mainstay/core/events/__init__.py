"""Every event: names, versions, fields, codec, and the evidence that a replay needs."""
