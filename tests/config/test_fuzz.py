"""Whatever is in a file, a variable or an option: problems, and never anything else."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstay import ConfigError, Engine
from mainstay.config.fields import CONFIG
from mainstay.config.load import load
from mainstay.config.show import leaves, visible

FEW = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
KEYS = (
    "retry policies standard maxAttempts store sinks audit extends jitter 5 0.5 null true".split()
)
SIGNS = (
    *(": ", ":", "- ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ",", "&a ", "*a", "<<", "!!x "),
    *("${A}", "${B}", "$${", "'", '"', "|", ">", "# ", "---\n", "\t"),
)
WORDS = st.sampled_from((*KEYS, *SIGNS))


def told(loaded):
    """Every problem as a sentence; neither these nor what is shown may raise or tell a secret."""
    shown = [visible(CONFIG, loaded.tree), list(leaves(CONFIG, loaded.tree))]
    sentences = [str(problem) for problem in loaded.report.problems]
    assert "secret-value" not in repr([shown, sentences, loaded.report.problems])
    return sentences


@FEW
@given(text=st.lists(WORDS, max_size=25).map("".join))
def test_any_words_of_yaml(text, tmp_path):
    path = tmp_path / "mainstay.yml"
    path.write_text(text, encoding="utf-8")
    assert all(told(load(path, env={"A": "secret-value"})))


@FEW
@given(content=st.binary(max_size=60))
@pytest.mark.parametrize("name", ["mainstay.yml", "a.toml"])
def test_any_bytes(name, content, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    assert all(told(load(path, env={})))


@FEW
@given(text=st.lists(WORDS, max_size=12).map("".join))
def test_any_words_of_toml(text, tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.mainstay]\n{text}", encoding="utf-8")
    assert all(told(load(path, env={})))


SEGMENTS = st.sampled_from(
    "RETRY POLICIES STANDARD MAX_ATTEMPTS BACKOFF KIND STORE URL SINKS LOGGING AUDIT X _ ".split(
        " "
    )
)
VALUES = st.lists(WORDS, max_size=4).map("".join)


@FEW
@given(segments=st.lists(SEGMENTS, min_size=1, max_size=5), value=VALUES)
def test_any_variable(segments, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert all(told(load(env={"MAINSTAY_" + "__".join(segments): value})))


@FEW
@given(option=st.lists(WORDS | st.sampled_from([".", "="]), max_size=8).map("".join))
def test_any_option(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert all(told(load(overrides=[option], env={})))


def test_a_tower_of_lists_in_toml(tmp_path):
    """A recursive reader says so, and the program goes on."""
    path = tmp_path / "a.toml"
    path.write_text("a = " + "[" * 50_000, encoding="utf-8")
    assert len(told(load(path, env={}))) == 1


def test_a_working_directory_that_is_gone(tmp_path, monkeypatch):
    """There is nothing to be found in it, and nothing wrong with that."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert load(env={}).file is None


def test_a_home_that_is_nobodys(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        Engine.from_config("~nobody-of-that-name/mainstay.yml", env={})
