"""Trust for a configuration that a test writes and lets be found."""

from mainstay.config.files.load_file import read_file
from mainstay.config.files.trust import trust
from mainstay.config.report import Report


def trusted(path):
    """The path, trusted as `mainstay config trust` does; a broken file is left as it is."""
    tree = read_file(path, str(path), Report({}), is_given=False).tree
    if tree is not None:
        trust(path, tree)
    return path
