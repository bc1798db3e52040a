"""Configuration: from files, the environment and the command line to one frozen value.

    files/        finds the file and reads it: search.py, load_file.py, yaml.py, toml.py
    tree.py       values, each with the line it comes from
    overrides.py  the environment and `--set`: they replace leaves of that tree
    shapes.py     the shapes of values; fields.py, retry_fields.py: every field
    check.py      checks a tree against the fields, and collects every problem
    settings.py   the result; policies.py, breakers.py: parts of it
    schema.py     the fields as JSON Schema
    show.py       a tree for people, without its secrets
    load.py       all of these, one after the other

Nothing is opened or started here: engine/from_config.py builds an engine from the result.
"""
