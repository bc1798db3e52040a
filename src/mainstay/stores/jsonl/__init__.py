"""JSONL files: the journal, its lines, its files and their rotation."""
