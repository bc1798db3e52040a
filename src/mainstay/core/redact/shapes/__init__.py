"""Places of secrets, a module each: calls, comparisons, expressions, files, signs, validators."""
