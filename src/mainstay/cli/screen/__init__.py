"""What a person sees: plain output, tables, progress."""
