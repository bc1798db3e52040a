"""`mainstay store`: purges expired records, and gives the space of a SQLite file back."""
