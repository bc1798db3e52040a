"""JSONL files: the journal of an audit log, its lines, its files and their rotation."""
