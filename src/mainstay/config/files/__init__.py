"""Configuration files: how they are found, and how YAML and TOML are read."""
