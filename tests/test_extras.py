"""What pyproject.toml promises: extras, description and keywords are those of the code."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {name: needs for name, needs in PROJECT["optional-dependencies"].items() if name != "all"}
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}

IMPORTED_AS = {"nats-py": "nats", "opentelemetry-api": "opentelemetry", "pyyaml": "yaml"}
"""Distributions whose module has another name."""

NO_EXTRA = {
    "_sha2": "part of the standard library from 3.12 on",
    "_sha256": "part of the standard library of 3.11",
    "aiohttp": "a client that its integration is for: who uses the one has the other",
    "arq": "as celery",
    "botocore": "part of boto3: as aiohttp",
    "celery": "a queue that its integration is for: who uses the one has the other",
    "dramatiq": "as celery",
    "grpc": "as aiohttp",
    "httpcore": "part of httpx",
    "httpcore2": "part of httpx2",
    "httpx": "as aiohttp",
    "httpx2": "as aiohttp",
    "psycopg2": "as aiohttp",
    "psycopg_pool": "of psycopg[pool], which the extra postgres names; for types alone",
    "pytest": "imported by its own plugin alone, which pytest loads",
    "requests": "as aiohttp",
    "sqlalchemy": "of a program that imports its integration, and has an engine of it",
    "taskiq": "as celery",
    "urllib3": "part of requests",
}
"""Modules that may be imported without an extra, and why."""


def module_of(requirement):
    """The module that a requirement brings."""
    name = re.match(r"[\w.-]+", requirement)[0].lower()
    return IMPORTED_AS.get(name, name.replace("-", "_"))


@cache
def imported_modules():
    """The modules of others that src/ imports, inside functions too, with the files that do."""
    found = {}
    for path, text in SOURCES.items():
        for node in ast.walk(ast.parse(text)):
            for name in names_in(node):
                found.setdefault(name.partition(".")[0], []).append(path.name)
    ours = sys.stdlib_module_names | {"mainstay"}
    return {name: files for name, files in found.items() if name not in ours}


def names_in(node):
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) else []


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_is_imported(extra):
    """An extra that nothing imports would install a library for nothing."""
    unused = {module_of(needed) for needed in EXTRAS[extra]} - imported_modules().keys()
    assert unused == set()


def test_every_imported_library_is_a_dependency_or_an_extra():
    """`pip install mainstay[...]` can bring everything that the code may ask for."""
    promised = [*PROJECT["dependencies"], *(need for needs in EXTRAS.values() for need in needs)]
    unknown = imported_modules().keys() - {module_of(need) for need in promised} - NO_EXTRA.keys()
    assert unknown == set()


def test_every_extra_that_an_error_or_a_page_names_exists():
    """The command in a MissingExtraError or in the docs installs something."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = [*SOURCES.values(), *(page.read_text(encoding="utf-8") for page in pages)]
    named = {
        extra
        for text in texts
        for found in re.findall(r"(?:mainstay|\.)\[([a-z][a-z,]*)\]['`]", text)
        for extra in found.split(",")
    }
    for text in SOURCES.values():
        named |= set(re.findall(r'MissingExtraError\("[\w-]+", "([\w-]+)"\)', text))
    assert {"cli", "charts", "postgres"} <= named
    assert named - EXTRAS.keys() == set()


@pytest.mark.parametrize("word", ["saga", "outbox", "kafka", "rabbitmq"])
def test_the_description_promises_only_what_is_there(word):
    """A word may enter the description when a folder or a module of src/ has its name."""
    promised = " ".join([PROJECT["description"], *PROJECT["keywords"]]).lower()
    exists = any((ROOT / "src/mainstay").rglob(f"{word}*"))
    assert exists or word not in promised
