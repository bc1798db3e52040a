"""Where records are kept: one folder per store, loaded when its URL is used."""
