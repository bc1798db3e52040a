"""Which configuration may decide: one that was named, or one that only this user can have written.

The tests run as any user: another owner is a `stat` that shows one.
"""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay import ConfigError, ConfigWarning, Engine
from mainstay.config.fields import CONFIG
from mainstay.config.files import trust as trust_module
from mainstay.config.files.trust import REACHES_NOTHING, digest, reach
from mainstay.config.files.trusted import NAME, add_trusted, trusted_files
from mainstay.config.files.yaml import read_yaml
from mainstay.config.load import load
from mainstay.config.report import Report
from mainstay.config.shapes import camel
from mainstay.config.tree import Node
from mainstay.runtime import private_files
from mainstay.runtime.private_files import state_folder
from tests.config.trusting import trusted

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX's")
RETRY = "retry: {policies: {standard: {maxAttempts: 2}}}\n"
STORE = "store: sqlite:///shop.db\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a folder in it, which is the working directory; and a state of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "src").mkdir()
    for each in (tmp_path / "project", tmp_path / "project" / "src"):
        each.chmod(0o755)
    monkeypatch.chdir(tmp_path / "project" / "src")
    return tmp_path / "project"


def put(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


def problems(path=None, **env):
    return [str(problem) for problem in load(path, env=env).report.problems]


def is_used(**env):
    loaded = load(env=env)
    return loaded.file is not None and not loaded.report.problems


# --- whose file it is --------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("where", ["project", "project/src", "project/mainstay.yml"])
@pytest.mark.parametrize("bit", [stat.S_IWOTH, stat.S_IWGRP], ids=["others", "group"])
def test_what_someone_else_can_write_to_is_not_used(project, where, bit, monkeypatch):
    """The file, its folder, and each folder up to the root of the search."""
    monkeypatch.setattr(private_files, "is_private_group", lambda gid: False)
    put(project / "mainstay.yml", RETRY)
    assert is_used()
    wide = project.parent / where
    wide.chmod(stat.S_IMODE(wide.stat().st_mode) | bit)
    if where == "project/src":  # it lies below the file, and has no part in finding it
        put(wide / "mainstay.yml", RETRY)
    (problem,) = problems()
    assert "is not used" in problem
    assert f"{wide} can be written by" in problem
    assert "--config, MAINSTAY_CONFIG or Engine.from_config(path)" in problem


@posix
def test_the_own_private_group_may_write(project, monkeypatch):
    """Many systems give each user a group and new files to it, with the mode 664."""
    monkeypatch.setattr(private_files, "is_private_group", lambda gid: True)
    put(project / "mainstay.yml", RETRY).chmod(0o664)
    project.chmod(0o775)
    assert is_used()


@posix
def test_an_access_list_that_lets_others_write_is_seen(project, monkeypatch):
    """Then the bits of the group are its mask, and do not show who it is."""
    monkeypatch.setattr(private_files, "is_private_group", lambda gid: True)
    names = ["system.posix_acl_access"]
    monkeypatch.setattr(trust_module.os, "listxattr", lambda path: names, raising=False)
    path = put(project / "mainstay.yml", RETRY)
    assert is_used()
    path.chmod(0o664)
    assert "access control list" in problems()[0]


class Owned:
    """A `stat` of another owner for some paths; everything else as it is."""

    def __init__(self, monkeypatch, uid, *paths):
        self.inodes = {os.lstat(path).st_ino for path in paths}
        self.uid = uid
        self.why = private_files.why_not_mine
        monkeypatch.setattr(trust_module, "why_not_mine", self)

    def __call__(self, found, **options):
        if found.st_ino in self.inodes:
            fields = list(found)
            fields[stat.ST_UID] = self.uid
            found = os.stat_result(fields)
        return self.why(found, **options)


OTHER = os.geteuid() + 1 if os.name == "posix" else 1


@posix
@pytest.mark.parametrize("owned", ["project/mainstay.yml", "project", "project/agent"])
def test_what_belongs_to_another_user_is_not_used(project, owned, monkeypatch):
    """A planted file; a file in a folder that somebody else has made a project."""
    name = "agent/config.yml" if owned.endswith("agent") else "mainstay.yml"
    put(project / name, RETRY)
    path = project.parent / owned
    Owned(monkeypatch, OTHER, path)
    (problem,) = problems()
    assert f"{path} belongs to user {OTHER}" in problem
    assert load(env={}).settings.policies == ()


@posix
def test_roots_files_are_used(project, monkeypatch):
    """The administrator may write wherever a user may."""
    path = put(project / "mainstay.yml", RETRY)
    Owned(monkeypatch, 0, path, project)
    assert is_used()


@posix
def test_a_folder_below_the_file_has_no_part(project, monkeypatch):
    """Only what lies between the file and the root of the search can change the file."""
    put(project / "mainstay.yml", RETRY)
    (project / "src").chmod(0o777)
    assert is_used()


@posix
def test_what_was_opened_counts_not_what_has_the_name_now(project, monkeypatch):
    """The file is replaced after it was opened: its owner was seen when it was read."""
    path = put(project / "mainstay.yml", RETRY)
    theirs = put(project / "theirs.yml", RETRY)
    Owned(monkeypatch, OTHER, theirs)
    real, moved = os.open, []

    def opens(name, *args, **kwargs):
        if Path(name) == path and not moved:
            moved.append(name)
            return real(theirs, *args, **kwargs)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(os, "open", opens)
    assert f"{path} belongs to user {OTHER}" in problems()[0]


@posix
@pytest.mark.parametrize("link", ["file", "folder", "a link on the way"])
def test_a_link_is_followed_to_what_it_leads_to(project, tmp_path, monkeypatch, link):
    """The real file, its folder, and a link in between must be safe, too."""
    place = tmp_path / "elsewhere"
    real = put(place / "config.yml", RETRY)
    place.chmod(0o755)
    if link == "folder":
        (project / "agent").symlink_to(place)
    elif link == "file":
        (project / "mainstay.yml").symlink_to(real)
    else:
        (tmp_path / "between").mkdir()
        (tmp_path / "between" / "link").symlink_to(real)
        (project / "mainstay.yml").symlink_to(tmp_path / "between" / "link")
        place = tmp_path / "between"
    assert is_used()
    place.chmod(0o777)
    (problem,) = problems()
    assert f"is a link, and on its way {place} can be written by every user" in problem


@posix
@pytest.mark.parametrize("name", ["pyproject.toml", "agent/config.yml"])
def test_a_file_that_has_nothing_of_ours_is_passed_over_whoever_owns_it(project, name):
    """It is not used, so nothing needs to be refused."""
    put(project / name, "[tool.other]\n" if name.endswith("toml") else "model: x\n").chmod(0o666)
    assert (load(env={}).file, problems()) == (None, [])


@posix
def test_a_broken_file_of_somebody_else_is_refused_not_explained(project):
    """What it contains is of no interest."""
    put(project / "mainstay.yml", "retry: [\n").chmod(0o666)
    (problem,) = problems()
    assert "can be written by every user" in problem


@posix
def test_a_file_that_was_named_may_be_anybodys(project):
    """Naming it is trust: an argument, or MAINSTAY_CONFIG."""
    path = put(project / "mainstay.yml", STORE)
    path.chmod(0o666)
    assert problems(path) == []
    assert problems(MAINSTAY_CONFIG=str(path)) == []
    assert len(problems()) == 1
    Engine.from_config(path, env={}, overrides=["store=memory://"]).close()


def test_no_file_at_all_can_be_named(project):
    """Where a refused file cannot be removed: the empty device is an empty configuration."""
    put(project / "mainstay.yml", STORE)
    assert problems(MAINSTAY_CONFIG=os.devnull) == []


@posix
def test_a_pipe_that_was_put_there_is_not_waited_for(project):
    os.mkfifo(project / "mainstay.yml")
    assert problems() == [f"{project}/mainstay.yml: is not a file"]


# --- what it says ------------------------------------------------------------------------------

HARMLESS = """\
retry: {policies: {standard: {maxAttempts: 2}}}
circuitBreaker: true
breakers: {global: {failureThreshold: 3}}
budgets: {retries: {ratio: 0.1}}
x-anchor: {any: "${THING}"}
"""


def test_policies_circuits_and_budgets_need_no_trust(project):
    """They open, write and send nothing."""
    put(project / "mainstay.yml", HARMLESS)
    assert is_used()


@pytest.mark.parametrize("field", CONFIG.fields, ids=lambda field: field.name)
def test_every_other_section_needs_trust(field):
    """Also one that is added tomorrow: the list has those that do not."""
    entries = {camel(field.name): Node({}, 1, "a")}
    assert bool(reach(Node(entries, 1, "a"))) is (field.name not in REACHES_NOTHING)


REACHING = {
    "a store": STORE,
    "a sink": "sinks: {jsonl: {path: a.jsonl}}\n",
    "a webhook": "inbox: {notify: {webhook: 'https://evil.example/'}}\n",
    "the audit log": "audit: {where: a.jsonl}\n",
    "no redaction": "redaction: {builtin: false}\n",
    "a variable": "retry: {policies: {standard: {maxAttempts: '${N}'}}}\n",
    "a variable in a list": "retry: {policies: {a: {retryOn: ['${SECRET}']}}}\n",
}


@pytest.mark.parametrize("text", REACHING.values(), ids=REACHING)
def test_what_reaches_out_needs_trust(project, text):
    """The message has the reason and the way out; nothing of the file is used."""
    path = put(project / "mainstay.yml", text)
    env = {"N": "7", "SECRET": "hunter2"}
    loaded = load(env=env)
    (problem,) = map(str, loaded.report.problems)
    assert "was not trusted yet" in problem
    assert f"mainstay config trust {path}" in problem
    assert "hunter2" not in problem
    assert (loaded.settings.policies, loaded.settings.store) == ((), {})
    trusted(path)
    assert problems(**env) == []


def test_a_change_of_the_content_needs_trust_again(project):
    """Another value does; a comment or a line break does not."""
    path = trusted(put(project / "mainstay.yml", STORE))
    put(path, f"# the shop\n\n{STORE}")
    assert is_used()
    put(path, STORE.replace("shop", "evil"))
    assert "has changed since it was trusted (20" in problems()[0]
    put(path, STORE)
    assert is_used()


def test_the_same_content_elsewhere_is_another_file(project):
    """A relative path would mean another place there."""
    trusted(put(project / "mainstay.yml", STORE))
    put(project / "src" / "mainstay.yml", STORE)
    assert "was not trusted yet" in problems()[0]


def test_only_our_table_of_a_project_counts(project):
    """A pyproject.toml changes every week, for other reasons."""
    text = "[project]\nversion = '1'\n[tool.mainstay]\nstore = 'memory://'\n"
    path = trusted(put(project / "pyproject.toml", text))
    put(path, text.replace("'1'", "'2'"))
    assert is_used()
    put(path, text.replace("memory://", "sqlite:///a.db"))
    assert "has changed" in problems()[0]


def test_only_our_part_of_the_agents_file_counts(project):
    text = "model: a\nstore: memory://\n"
    path = trusted(put(project / "agent" / "config.yml", text))
    put(path, text.replace("model: a", "model: ${KEY}"))
    assert is_used()


def test_overrides_are_the_users_own(project):
    """What the environment and --set name needs no trust."""
    put(project / "mainstay.yml", RETRY)
    loaded = load(env={"MAINSTAY_STORE": "memory://"}, overrides=["inbox.escalate=true"])
    assert not loaded.report.problems


def test_an_engine_says_why_it_does_not_use_a_file(project):
    """As an error, or as a warning and with one attempt for what the file names."""
    put(project / "mainstay.yml", STORE + "retry: {operations: {charge: standard}}\n")
    with pytest.raises(ConfigError, match="mainstay config trust"):
        Engine.from_config(env={})
    with pytest.warns(ConfigWarning, match="mainstay config trust"):
        engine = Engine.from_config(env={}, on_error="default")
    with engine:
        assert engine.policies.of("charge").max_attempts == 1
        assert engine.store.url == "memory://"


# --- the list ----------------------------------------------------------------------------------


def test_a_list_that_cannot_be_this_users_trusts_nothing(project, monkeypatch):
    """Neither a damaged one, nor one that others can write to, nor none because home is unknown."""
    path = trusted(put(project / "mainstay.yml", STORE))
    kept = state_folder() / NAME
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 or os.name != "posix"
    content = kept.read_bytes()
    kept.write_bytes(b"[")
    assert "cannot be read" in problems()[0]
    assert "is damaged" in problems()[0]
    kept.write_bytes(content)
    assert is_used()
    if os.name == "posix":
        kept.chmod(0o666)
        assert "can be written by every user" in problems()[0]
        kept.chmod(0o600)
        state_folder().chmod(0o777)
        assert "cannot be read" in problems()[0]
        state_folder().chmod(0o700)
    assert is_used()
    assert path.exists()


def test_trusting_twice_is_one_entry(project):
    path = trusted(put(project / "mainstay.yml", STORE))
    trusted(path)
    (entry,) = trusted_files()
    assert entry.path == str(path)
    add_trusted(entry)
    assert trusted_files() == [entry]


def tree(value):
    """A value as a tree without lines."""
    if isinstance(value, dict):
        return Node({key: tree(child) for key, child in value.items()}, 1, "a")
    if isinstance(value, list):
        return Node([tree(child) for child in value], 1, "a")
    return Node(value, 1, "a")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@settings(max_examples=40)
@given(VALUES, VALUES)
def test_two_contents_have_two_hashes(one, other):
    """In every sort, order and nesting; `repr` tells them apart, 1 from 1.0 and from True."""
    assert (digest(tree(one)) == digest(tree(other))) is (repr(one) == repr(other))


def test_a_number_of_any_length_has_a_hash():
    """Python refuses to print 5,000 digits."""
    assert digest(tree(1 << 40_000)) != digest(tree(1 << 40_001))


def test_the_hash_is_for_ever():
    """A new version does not ask for trust again."""
    found = read_yaml(
        "store: memory://\nretry: {nested: warn, x: [1, 2.5, yes, ~, '${A}']}\n", "a", Report({})
    )
    assert digest(found) == "8899f74afed8fafd9ba945fc9b45f18afca6ad00611a791d60aa1bbb3e93f9ca"
