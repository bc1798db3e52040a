"""Configuration: from files, the environment and the command line to one frozen value.

    search.py     which file it is
    files.py      its bytes, and which sort of file; yaml_file.py, toml_file.py
    tree.py       values that know where they stand
    overrides.py  the environment and `--set`, as other leaves of that tree
    shapes.py     sorts of values; fields.py, retry_fields.py: every field there is
    check.py      holds a tree against the fields, and collects what is wrong
    settings.py   what comes out; policies.py, breakers.py: parts of it
    schema.py     the fields as JSON Schema
    show.py       a tree for people, without its secrets
    load.py       all of these, one after the other

Nothing is opened or started here: configured.py, one floor up, makes an engine of it.
"""
