"""`python -m mainstay`: the same as the `mainstay` command."""

import sys

from mainstay.cli import main

if __name__ == "__main__":
    sys.exit(main())
