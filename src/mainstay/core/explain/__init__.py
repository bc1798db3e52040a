"""What a policy will do, in words and numbers, before it does it."""
