"""`mainstay doctor`: what is installed, what is missing, how good clock and store are.

It reads package metadata and imports nothing of the library but what opens a store it is asked
about and what reads the configuration, so that it works even if the library does not.
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from mainstay import __version__
from mainstay.cli.exits import Exit
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.cli.screen.console import Screen
    from mainstay.config.load import Loaded

OLDEST_PYTHON = (3, 11)
_SHOWN = 3
"""Problems of a configuration that are listed."""


@click.command(
    "doctor",
    epilog=example(
        "mainstay doctor", "mainstay doctor --json", "mainstay doctor --store sqlite:///:memory:"
    ),
)
@click.option("--store", metavar="URL", help="Open this store too: version, schema, latency.")
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    help="Check who can read this file too, such as telemetry.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, as_json: bool, store: str | None, files: tuple[str, ...]
) -> None:  # fmt: skip
    """Check Python, extras, the clock, configuration and a store.

    Exits with 1 if something does not work; an extra that is not installed is no problem, and
    neither is a warning.
    """
    libraries = list(find_libraries())
    problems = [*_problems_of_python(), *_problems_of(libraries)]
    described = _describe(store, problems) if store else None
    loaded = _configuration(problems)
    file = None if loaded is None else loaded.file
    warnings = list(_warnings(store, files, loaded, problems))
    if as_json:
        document = _document(libraries, problems, described)
        write_json(document | {"warnings": warnings, "configuration": file})
    else:
        _show(libraries, problems, described, file)
        for warning in warnings:
            write(f"warning: {warning}")
    ctx.exit(Exit.NEGATIVE if problems else Exit.OK)


def _warnings(
    store: str | None, files: tuple[str, ...], loaded: Loaded | None, problems: list[str]
) -> Iterator[str]:
    """What others can read or have planted; what is not used for that reason is a problem."""
    from mainstay.cli import own_files

    problems += own_files.problems_of_state()
    yield from own_files.warnings_of_state()
    settings = None if loaded is None else loaded.settings
    named = () if settings is None else own_files.files_of_settings(settings)
    for file in dict.fromkeys((*own_files.files_of_store(store), *named, *files)):
        yield from own_files.warnings_of(file)


def _describe(url: str, problems: list[str]) -> dict[str, object] | None:
    """The description of a store; if that fails, one more problem."""
    from mainstay.errors import MainstayError, StoreUnavailable
    from mainstay.stores.open import open_store

    try:
        store = open_store(url)
        try:
            return {**store.describe(), "abilities": sorted(store.abilities)}
        finally:
            store.close()
    except StoreUnavailable as error:  # its hint is this command
        problems.append(f"{error.url} is unavailable: {error.reason}")
    except MainstayError as error:
        problems.append(str(error))
    return None


def _configuration(problems: list[str]) -> Loaded | None:
    """The configuration in use; its problems are added, or their number if they are many."""
    try:
        from mainstay.config.load import load

        loaded = load()
    except Exception as error:
        problems.append(f"the configuration cannot be read: {error}")
        return None
    found = [str(problem) for problem in loaded.report.problems]
    if len(found) > _SHOWN:
        found = [f"{loaded.file}: {len(found)} problems: mainstay config check"]
    problems += found
    return loaded


@dataclass(frozen=True, slots=True)
class Library:
    """A library that the base install or an extra needs."""

    name: str
    extra: str
    minimum: str
    installed: str | None

    @property
    def is_old(self) -> bool:
        return self.installed is not None and _numbers(self.installed) < _numbers(self.minimum)


def find_libraries() -> Iterator[Library]:
    """Every library that mainstay's own metadata names."""
    from importlib import metadata

    try:
        requirements = metadata.requires("mainstay") or []
    except metadata.PackageNotFoundError:
        return
    for requirement in requirements:
        parsed = _REQUIREMENT.match(requirement)
        if parsed is not None and parsed["extra"] != "all":
            yield Library(
                parsed["name"],
                parsed["extra"] or "",
                parsed["minimum"] or "",
                _version_of(parsed["name"]),
            )


# "psycopg[binary,pool]>=3.2; extra == 'postgres'": pyproject.toml uses no other form.
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(\[[^\]]*\])?\s*(>=\s*(?P<minimum>[\w.]+))?"
    r"(\s*;\s*extra == ['\"](?P<extra>[\w-]+)['\"])?"
)


def _version_of(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, without zeros at the end: 8.10.1rc1 is (8, 10, 1)."""
    found = re.match(r"[\d.]*", version)
    numbers = [int(part) for part in found[0].split(".") if part] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _problems_of_python() -> Iterator[str]:
    if sys.version_info < OLDEST_PYTHON:
        yield f"Python {_python()} is too old; mainstay needs 3.11 or later"
    if not time.get_clock_info("monotonic").monotonic:
        yield "the clock is not monotonic: delays and deadlines may be wrong"


def _problems_of(libraries: list[Library]) -> Iterator[str]:
    if not libraries:
        yield "mainstay runs from a folder and is not installed; pip install mainstay"
    for library in libraries:
        if library.is_old:
            yield (
                f"{library.name} {library.installed} is older than {library.minimum};"
                f" pip install --upgrade {_quoted(library)}"
            )
        elif library.installed is None and not library.extra:
            yield f"{library.name} is missing; pip install mainstay"


def _quoted(library: Library) -> str:
    return f"'{library.name}>={library.minimum}'"


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _extras(libraries: list[Library]) -> dict[str, list[Library]]:
    extras: dict[str, list[Library]] = {}
    for library in libraries:
        if library.extra:
            extras.setdefault(library.extra, []).append(library)
    return extras


def _install(extra: str, libraries: list[Library]) -> str | None:
    """The command that installs an extra, if something of it is missing."""
    is_missing = any(library.installed is None for library in libraries)
    return f"pip install 'mainstay[{extra}]'" if is_missing else None


def _clock() -> dict[str, object]:
    info = time.get_clock_info("monotonic")
    return {
        "source": info.implementation,
        "resolution_seconds": info.resolution,
        "sleep_overshoot_seconds": _overshoot(),
    }


def _overshoot(asked: float = 0.001, times: int = 9) -> float:
    """How much longer than asked a short wait takes: the median of several."""
    late = []
    for _ in range(times):
        before = time.monotonic()
        time.sleep(asked)
        late.append(time.monotonic() - before - asked)
    return max(0.0, sorted(late)[times // 2])


def _document(
    libraries: list[Library], problems: list[str], store: dict[str, object] | None
) -> dict[str, object]:
    return {
        "mainstay": __version__,
        "python": {
            "version": _python(),
            "implementation": sys.implementation.name,
            "platform": sys.platform,
            "executable": sys.executable,
        },
        "base": [asdict(library) for library in libraries if not library.extra],
        "extras": {
            extra: {"install": _install(extra, found), "libraries": [asdict(lib) for lib in found]}
            for extra, found in _extras(libraries).items()
        },
        "clock": _clock(),
        "store": store,
        "problems": problems,
    }


def _show(
    libraries: list[Library],
    problems: list[str],
    store: dict[str, object] | None,
    file: str | None,
) -> None:
    from mainstay.cli.screen.console import Screen, fields, table

    screen = Screen()
    facts = [*_facts(libraries), ("configuration", file or "no file"), *_store_facts(store or {})]
    screen.show(fields(facts), "")
    rows = [_extra_row(extra, found) for extra, found in _extras(libraries).items()]
    screen.show(table(("extra", "installed", "to install it"), rows, left=3), "")
    _show_problems(screen, problems)


def _facts(libraries: list[Library]) -> list[tuple[str, str]]:
    clock = _clock()
    base = [f"{lib.name} {lib.installed or 'missing'}" for lib in libraries if not lib.extra]
    return [
        ("mainstay", __version__),
        ("Python", f"{_python()} ({sys.implementation.name} on {sys.platform})"),
        ("base install", ", ".join(base)),
        ("clock", f"{clock['source']}, resolution {clock['resolution_seconds']:g} s"),
        ("a wait of 1 ms", f"takes {clock['sleep_overshoot_seconds']:.6f} s longer"),
    ]


def _store_facts(store: dict[str, object]) -> list[tuple[str, str]]:
    shown = {"store": "store", "url": "", "version": "", "schema": "", "latency_ms": ""}
    facts = [(name, store[name]) for name in shown if name in store]
    facts += [(name, value) for name, value in store.items() if name not in shown]
    return [
        (
            name.replace("_ms", " in ms").replace("_", " "),
            ", ".join(map(str, value)) if isinstance(value, list) else str(value),
        )
        for name, value in facts
    ]


def _extra_row(extra: str, libraries: list[Library]) -> tuple[str, str, str]:
    installed = [f"{lib.name} {lib.installed}" for lib in libraries if lib.installed]
    return extra, ", ".join(installed) or "–", _install(extra, libraries) or ""


def _show_problems(screen: Screen, problems: list[str]) -> None:
    if not problems:
        write("No problems found. Extras that are not installed are only needed where used.")
    for problem in problems:
        screen.print(f"problem: {problem}", style="red", soft_wrap=True)
