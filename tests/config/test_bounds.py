"""A configuration or policy that somebody else has written: bounded, and the limit is named."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner

from mainstay.cli.app import app
from mainstay.cli.audit.policy_file import PolicyFile
from mainstay.cli.errors import CommandError
from mainstay.config.files.load_file import read_file
from mainstay.config.load import load
from mainstay.config.report import Report

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 10)
)
NESTED = '{"a": ' + "[" * 100_000
TOML = "[tool.mainstay]\n"
IN_TOML = {
    "a dotted key": ("a." * 20_000 + "a = 1", "key of more than 50 parts"),
    "a dotted key of digits": ("1 . " * 20_000 + "1 = 1", "key of more than 50 parts"),
    "a dotted key of texts": ('\'a b\'."c\\".".' * 9_000 + "a = 1", "key of more than 50 parts"),
    "a dotted header": ("[tool." + "a." * 20_000 + "a]", "key of more than 50 parts"),
    "in an inline table": ("a = {" + "a." * 20_000 + "a = 1}", "key of more than 50 parts"),
    "a number": ("a = " + "9" * 5_000, "number of more than 300 digits"),
    "a number in base 16": ("a = 0x" + "f" * 5_000, "number of more than 300 digits"),
    "a number in a list": ("a = [[0b" + "1" * 5_000 + "]]", "number of more than 300 digits"),
    "lists": ("a = " + "[" * 5_000, "nested more than 50 deep"),
    "fewer lists": ("a = " + "[" * 60 + "]" * 60, "nested more than 50 deep"),
    "tables": ("a = " + "{a = " * 5_000, "nested more than 50 deep"),
    "keys in tables": ("[" + "a." * 40 + "a]\n" + "b." * 40 + "b = 1", "nested more than 50 deep"),
}
IN_YAML = {
    "aliases": (BOMB, "more than 500000 values"),
    "merged mappings": (MERGED, "more than 500000 values"),
    "nesting": (NESTED, "nested more than 50 deep"),
    "size": ("#" * (10 * 1024 * 1024 + 1), "larger than 10 MB"),
}


def problems_of(path, text):
    path.write_text(text)
    report = Report({})
    assert read_file(path, path.name, report).tree is None
    return [str(problem) for problem in report.problems]


@pytest.mark.parametrize("what", IN_TOML)
def test_toml_that_would_cost_too_much_is_refused(tmp_path, what):
    """With the name of the file and the limit; no error of Python's own comes through."""
    text, limit = IN_TOML[what]
    (problem,) = problems_of(tmp_path / "pyproject.toml", TOML + text + "\n")
    assert problem.startswith("pyproject.toml")
    assert limit in problem


@pytest.mark.parametrize("name", ["mainstay.yml", "mainstay.json"])
@pytest.mark.parametrize("what", IN_YAML)
def test_yaml_and_json_that_would_cost_too_much_are_refused(tmp_path, name, what):
    """JSON is read by the same reader."""
    text, limit = IN_YAML[what]
    (problem,) = problems_of(tmp_path / name, text)
    assert problem.startswith(name)
    assert limit in problem


@pytest.mark.parametrize("what", IN_YAML)
def test_a_policy_file_is_bounded_as_a_configuration_is(tmp_path, what):
    """`mainstay audit whatif --policy FILE` ends with the file and the limit."""
    text, limit = IN_YAML[what]
    path = tmp_path / "policy.yml"
    path.write_text(text)
    with pytest.raises(CommandError, match=limit) as refused:
        PolicyFile(str(path))
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["", "[1]", "a: [", "\t- b", "policies: {a: *b}"])
def test_a_policy_file_that_is_none_is_an_error_of_the_command(tmp_path, text):
    """Exit 2, and one line with the file."""
    path = tmp_path / "policy.yml"
    path.write_text(text)
    done = CliRunner().invoke(app, ["audit", "whatif", str(tmp_path / "no"), "--policy", str(path)])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) != (0, False)
    with pytest.raises(CommandError, match=r"policy\.yml"):
        PolicyFile(str(path))


@pytest.mark.parametrize(
    "text",
    [
        "a.b.c.d.e = 1\n[x.'y.z'.\"w\"]\nb = 2",
        'urls = ["' + '", "'.join(["https://a.b.c/d.e"] * 200) + '"]',
        "floats = [" + ", ".join(["1.25"] * 300) + "]",
        'text = """\n' + "Chapter " + "." * 200 + " 5\n" + "One. Two. " * 100 + '\n"""',
        "n = 123456789012345678901234567890",
        "versions = '" + "1." * 500 + "'",
    ],
)
def test_real_files_are_not_refused(tmp_path, text):
    """Long lines, many dots and numbers of more than 64 bits."""
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.other]\n{text}\n{TOML}x = 1\n")
    report = Report({})
    tree = read_file(path, path.name, report).tree
    assert report.problems == []
    assert tree.plain == {"x": 1}


def many(count, line):
    return "retry:\n  policies:\n" + "".join(f"    p{n}: {line(n)}\n" for n in range(count))


SLOW = {
    "a long chain of policies": many(30_000, lambda n: f"{{extends: p{n + 1}}}"),
    "many policies that extend none": many(4_000, lambda n: f"{{extends: q{n}}}"),
    "long names that are alike": many(
        2, lambda n: f"{{extends: '{''.join(chr(0x4E00 + n % 101) for n in range(60_000))}'}}"
    ).replace("p0:", "".join(chr(0x4E00 + n * 7 % 101) for n in range(60_000)) + ":"),
}


@pytest.mark.parametrize("what", SLOW)
def test_a_file_of_policies_takes_no_time_in_proportion_to_its_square(tmp_path, what):
    """A file with policies alone needs no trust, and a repository may bring it."""
    path = tmp_path / "mainstay.yml"
    path.write_text(SLOW[what], encoding="utf-8")
    before = time.process_time()
    assert load(path, env={}).report.problems
    assert time.process_time() - before < 10


def test_a_chain_of_policies_that_is_long_is_read(tmp_path):
    """Each has the fields of the last."""
    path = tmp_path / "mainstay.yml"
    chain = many(3_000, lambda n: f"{{extends: p{n + 1}}}") + "    p3000: {maxAttempts: 7}\n"
    path.write_text(chain, encoding="utf-8")
    assert {each.max_attempts for each in load(path, env={}).settings.policies} >= {7}
