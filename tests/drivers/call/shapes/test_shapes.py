"""The wrappers that are there as Python's source are those that the templates make."""

import asyncio

import pytest

from mainstay import RetryPolicy
from mainstay.drivers.call import templates
from tools import wrappers

POLICY = RetryPolicy(name="op", retry_on=OSError)


@pytest.fixture
def nothing_compiled(monkeypatch):
    """As in a new process; an error if something is compiled."""

    def refuse(*_):
        raise AssertionError("compiled")

    monkeypatch.setattr(templates, "_shapes", {})
    monkeypatch.setattr(templates, "_codes", {})
    monkeypatch.setattr(templates, "compile", refuse, raising=False)


@pytest.mark.parametrize("path", wrappers.PATHS)
def test_the_modules_are_what_the_templates_make(path):
    """If this fails: .venv/bin/python tools/wrappers.py --write."""
    module = wrappers.FOLDER / f"{path}.py"
    assert module.read_text(encoding="utf-8") == wrappers.render(path)


@pytest.mark.parametrize("path", wrappers.PATHS)
@pytest.mark.parametrize("shape", wrappers.SHAPES, ids=str)
def test_the_code_is_that_of_the_template(path, shape, monkeypatch):
    """To the instruction, the constant and the line; and it has the file name of generated code."""
    signature = templates.Signature(shape)
    shipped = templates._code_of((path,), signature)
    monkeypatch.setattr(templates, "_shipped", lambda path: {})
    compiled = templates._code_of((path,), signature)
    assert shipped == compiled
    assert shipped is not compiled
    assert shipped.co_filename == compiled.co_filename == "<mainstay>"
    assert shipped.co_qualname == compiled.co_qualname


@pytest.mark.usefixtures("nothing_compiled")
def test_functions_of_the_commonest_shapes_compile_nothing():
    """Plain functions and methods, sync and async, with names of their own."""

    def get(url, /, timeout=5.0):
        return url, timeout

    def post(url, *, body=None):
        return url, body

    def send(*args, **options):
        return args, options

    async def fetch(url, **options):
        return url, options

    assert POLICY(get)("/", timeout=1.0) == ("/", 1.0)
    assert POLICY(post)(url="/", body="b") == ("/", "b")
    assert POLICY(send)(1, two=2) == ((1,), {"two": 2})
    assert asyncio.run(POLICY(fetch)("/", retries=0)) == ("/", {"retries": 0})


@pytest.mark.usefixtures("nothing_compiled")
def test_another_shape_is_compiled():
    """What the fixture refuses does happen."""
    with pytest.raises(AssertionError, match="compiled"):
        POLICY(lambda a, *, b, c, d: (a, b, c, d))


def test_a_wrapper_is_printed_with_its_lines():
    """The lines that a traceback shows, of the tags that are asked for."""
    shown = wrappers.numbered(("first", "gated", "kept")).splitlines()
    assert shown[1] == "  2      def first_attempt(*ms_args, **ms_kwargs):"
    assert any("ms_quiet = ms_now" in line for line in shown)
    assert not any("ms_quiet" in line for line in wrappers.numbered(("first",)).splitlines()[1:])
