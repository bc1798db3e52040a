"""Effects: single calls of infrastructure, their results and errors, and who retries them."""
