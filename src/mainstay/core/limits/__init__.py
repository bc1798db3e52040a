"""What bounds calls and retries: retry budgets, rate limits, adaptive throttling."""
