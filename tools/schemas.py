"""The JSON Schemas of the pipelines' front door, as files.

python tools/schemas.py            print them
python tools/schemas.py --write    write them into the package and docs/reference/schemas
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mainstay.profiles.pipelines import SCHEMAS, schema

ROOT = Path(__file__).parents[1]
PLACES = (ROOT / "src" / "mainstay" / "schemas", ROOT / "docs" / "reference" / "schemas")


def main(arguments: list[str] | None = None) -> int:
    """Print the schemas, or write them to both places."""
    parser = argparse.ArgumentParser(description="The JSON Schemas as files.")
    parser.add_argument("--write", action="store_true", help="write the files")
    write = parser.parse_args(arguments).write
    for name in SCHEMAS:
        if not write:
            print(render(name), end="")
            continue
        for place in PLACES:
            place.mkdir(exist_ok=True)
            (place / name).write_text(render(name), encoding="utf-8")
    return 0


def render(name: str) -> str:
    """The text of one file."""
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
