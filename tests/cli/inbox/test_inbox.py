"""`mainstay inbox` and `mainstay operators`, as people and programs use them."""

import json
import sqlite3

import pytest

from mainstay import BreakerSettings, Engine, Item, OutcomeUnknown, RetryPolicy
from mainstay.audit import make_key

SECRET = "correct-horse-9f3kqz"
ONCE = RetryPolicy(name="standard", max_attempts=1)


@pytest.fixture
def url(tmp_path):
    """A store with one operator, ann, and one call in doubt."""
    url = f"sqlite:///{tmp_path}/app.db"
    with Engine(url, sinks=[], policies=[ONCE], share=None) as engine:
        engine.operators.add("ann", secret=SECRET)

        def charge():
            raise OutcomeUnknown("charge")

        operation = engine.operation("charge", idempotency="unsafe", key="order-7")
        with pytest.raises(OutcomeUnknown):
            operation.call(charge)
    return url


def only_item(url):
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        (item,) = engine.inbox.all()
        return item


def events_of(url):
    """What the audit holds of people."""
    from mainstay.audit.open import open_journal
    from mainstay.audit.read import records_in

    journal = open_journal(url, reads_only=True)
    try:
        found = [json.loads(each.body) for block in journal.blocks(0) for each in records_in(block)]
    finally:
        journal.close()
    return [each for each in found if each["event_type"].startswith(("inbox", "operator"))]


def test_evidence_may_be_a_file(run, url, tmp_path):
    """One that is not there, or is no text, is told; nothing is decided by it."""
    item, act = only_item(url), {"MAINSTAY_OPERATOR_SECRET": SECRET}
    words = ("inbox", "done", item.id, "--as", "ann", "--store", url, "--evidence")
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    for file in ("none.json", "photo.jpg"):
        refused = run(*words, f"@{tmp_path}/{file}", **act)
        assert refused.returncode == 2, refused.stdout
        assert file in refused.stderr
        assert "Traceback" not in refused.stderr
    (tmp_path / "receipt.json").write_text('{"id": "\u00fc"}', encoding="utf-8")
    done = run(*words, f"@{tmp_path}/receipt.json", **act)
    assert done.returncode == 0, done.stderr
    assert json.loads(only_item(url).decision.evidence) == {"id": "\u00fc"}


@pytest.mark.req("IT-041-11", "AG-02.person")
def test_an_item_is_listed_shown_and_decided(run, url):
    """The whole way, and the audit holds who, when and why; the next call has the outcome."""
    listed = run("inbox", "--store", url)
    item = only_item(url)
    assert listed.returncode == 0, listed.stderr
    assert item.id in listed.stdout
    assert "unknown_outcome" in listed.stdout
    shown = run("inbox", "show", item.id, "--store", url)
    assert "mark_done, retry, abandon" in shown.stdout
    done = run(
        "inbox", "done", item.id, "--as", "ann", "--why", "on the statement", "--evidence",
        '{"id": 7}', "--store", url, MAINSTAY_OPERATOR_SECRET=SECRET,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "the outcome is recorded" in done.stdout
    assert run("inbox", "--store", url).stdout == "no item is open\n"
    with Engine(url, sinks=[], policies=[ONCE], share=None) as engine:
        operation = engine.operation("charge", idempotency="unsafe", key="order-7")
        assert operation.call(lambda: None) == {"id": 7}
    told = {each["event_type"]: each for each in events_of(url)}
    assert told["inbox_decided"]["operator"] == "ann"
    assert told["inbox_decided"]["why"] == "on the statement"
    assert told["inbox_decided"]["timestamp"]
    assert told["inbox_closed"]["item"] == item.id


def test_json_is_for_programs(run, url):
    """The list, the item, and what was decided."""
    (listed,) = json.loads(run("inbox", "--json", "--store", url).stdout)
    assert (listed["kind"], listed["severity"], listed["status"]) == (
        "unknown_outcome", "high", "open",
    )  # fmt: skip
    shown = json.loads(run("inbox", "show", listed["id"], "--json", "--store", url).stdout)
    assert shown["actions"] == ["mark_done", "retry", "abandon"]
    assert shown["history"][0]["text"] == listed["text"]
    done = run(
        "inbox", "retry", listed["id"], "--as", "ann", "--json", MAINSTAY_OPERATOR_SECRET=SECRET,
        MAINSTAY_STORE=url,
    )  # fmt: skip
    assert json.loads(done.stdout)["decision"]["action"] == "retry"


@pytest.mark.req("AG-02.person")
def test_a_wrong_secret_is_refused_and_in_the_audit(run, url):
    """Exit code 1, one line that says so, and nothing is decided."""
    item = only_item(url)
    done = run(
        "inbox", "retry", item.id, "--as", "ann", "--store", url, MAINSTAY_OPERATOR_SECRET="wrong-1"
    )
    assert done.returncode == 1
    assert done.stderr == "mainstay: the name or the secret is wrong\n"
    assert only_item(url).status == "open"
    refused = [each for each in events_of(url) if each["event_type"] == "operator_refused"]
    assert [(each["operator"], each["about"]) for each in refused] == [("ann", f"retry {item.id}")]


def test_the_loser_is_told_by_whom_when_and_what(run, url):
    """Exit code 1."""
    item = only_item(url)
    env = {"MAINSTAY_OPERATOR_SECRET": SECRET, "MAINSTAY_STORE": url}
    first = run("inbox", "abandon", item.id, "--as", "ann", "--why", "cancelled", **env)
    assert first.returncode == 0, first.stderr
    second = run("inbox", "retry", item.id, "--as", "ann", **env)
    assert second.returncode == 1
    assert "ann has decided 'abandon' before" in second.stderr
    assert "UTC" in second.stderr
    assert "cancelled" in second.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["inbox", "--store", "sqlite:////nowhere/at/all.db"], 2, "no such file"),
        (["inbox", "show", "nothing", "STORE"], 1, "there is no item 'nothing'"),
        (["inbox", "retry", "ID", "STORE"], 2, "no operator is named"),
        (["inbox", "retry", "ID", "--as", "ann", "STORE"], 2, "no secret of ann was given"),
        (["inbox", "release", "ID", "--as", "ann", "STORE", "SECRET"], 1, "legal for this item:"),
        (["inbox", "done", "ID", "--as", "ann", "STORE", "SECRET"], 1, "needs evidence"),
        (["inbox", "abandon", "ID", "--as", "ann", "STORE", "SECRET"], 1, "needs a reason"),
        (["inbox", "retry", "ID", "--as", "ann", "--revision", "9", "STORE", "SECRET"], 1, "its"),
        (["inbox", "retry", "nothing", "--as", "ann", "STORE", "SECRET"], 1, "no item 'nothing'"),
        (["operators", "add", "bob", "STORE", "SECRET"], 1, "not the first"),
        (["operators", "remove", "ann", "--as", "ann", "STORE", "SECRET"], 2, "last operator"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(run, url, arguments, code, told):
    """With what to do next."""
    env = {"MAINSTAY_OPERATOR_SECRET": SECRET} if "SECRET" in arguments else {}
    words = {"ID": [only_item(url).id], "STORE": ["--store", url], "SECRET": []}
    given = [word for each in arguments for word in words.get(each, [each])]
    done = run(*given, **env)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_operators_are_added_listed_and_changed(run, tmp_path):
    """The first by whoever has the store, the others by an operator; with files for secrets."""
    url, mine, new = f"sqlite:///{tmp_path}/new.db", tmp_path / "mine", tmp_path / "new"
    mine.write_text(SECRET + "\n")
    mine.chmod(0o600)
    new.write_text("battery-staple\n")
    new.chmod(0o644)
    assert run("operators", "add", "ann", "--store", url, "--secret-file", mine).returncode == 0
    _, public = make_key(tmp_path / "key.pem")
    env, by = {"MAINSTAY_STORE": url}, ("--as", "ann", "--secret-file", mine)
    added = run("operators", "add", "bob", *by, "--new-secret-file", new, **env)
    assert added.returncode == 0, added.stderr
    assert "others may read it; chmod 600" in added.stderr
    keyed = run("operators", "add", "cyn", "--public-key", public, *by, **env)
    assert keyed.returncode == 0, keyed.stderr
    listed = json.loads(run("operators", "--json", **env).stdout)
    assert [(each["name"], each["proof"], each["added_by"]) for each in listed] == [
        ("ann", "secret", ""), ("bob", "secret", "ann"), ("cyn", "key", "ann"),
    ]  # fmt: skip
    assert run("operators", "disable", "bob", *by, **env).stdout == "bob can act no more\n"
    assert "disabled" in run("operators", **env).stdout
    assert run("operators", "enable", "bob", *by, **env).returncode == 0
    env_new = env | {
        "MAINSTAY_OPERATOR_SECRET": "battery-staple",
        "MAINSTAY_NEW_SECRET": "another-staple",
    }
    assert run("operators", "passwd", "bob", **env_new).returncode == 0
    assert run("operators", "passwd", "bob", **env_new).returncode == 1
    off = run("operators", "disable", "bob", *by, "--json", **env)
    assert json.loads(off.stdout)["state"] == "disabled"
    gone = run("operators", "remove", "bob", *by, "--json", **env)
    assert (gone.returncode, json.loads(gone.stdout)) == (0, None)
    assert len(json.loads(run("operators", "--json", **env).stdout)) == 2


def test_a_key_decides_too(run, url, tmp_path):
    """Without a secret anywhere."""
    private, public = make_key(tmp_path / "bob.pem")
    env = {"MAINSTAY_STORE": url}
    run(
        "operators", "add", "bob", "--public-key", public, "--as", "ann",
        MAINSTAY_OPERATOR_SECRET=SECRET, **env,
    )  # fmt: skip
    done = run("inbox", "retry", only_item(url).id, "--as", "bob", "--key-file", private, **env)
    assert done.returncode == 0, done.stderr
    assert only_item(url).decision.by == "bob"


@pytest.mark.req("AG-02.person")
def test_a_secret_is_asked_for_without_being_shown(terminal, url):
    """In a terminal: what is typed is nowhere on the screen, and the item is decided."""
    item = only_item(url)
    screen = terminal("inbox", "retry", item.id, "--as", "ann", "--store", url)
    screen.wait_for("secret of ann")
    screen.press(SECRET.encode() + b"\n")
    assert screen.wait() == 0, screen.text
    assert "the record is released" in screen.text
    assert SECRET not in screen.text


def test_a_planted_secret_is_on_no_screen_and_in_no_file(run, url, tmp_path):
    """Right or wrong, in the list, the item, the answers, the audit and every byte of the store."""
    item = only_item(url)
    env = {"MAINSTAY_STORE": url, "MAINSTAY_DEBUG": "1"}
    wrong = SECRET + "-but-wrong"
    said = [
        run("inbox", "retry", item.id, "--as", "ann", **env, MAINSTAY_OPERATOR_SECRET=wrong),
        run("inbox", "retry", item.id, "--as", "ann", **env, MAINSTAY_OPERATOR_SECRET=SECRET),
        run("inbox", "show", item.id, **env),
        run("operators", **env),
        run("operators", "--json", **env),
        run("audit", "tail", url, "--json"),
    ]
    assert [each.returncode for each in said] == [1, 0, 0, 0, 0, 0]
    for each in said:
        assert SECRET not in each.stdout + each.stderr
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes()


def test_what_was_decided_and_not_carried_out_is_listed(run, url):
    """Whoever decided has died; the next command for the item carries it out."""
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        item = engine.inbox.put(Item(kind="quarantine", subject="t", operation="pay", text="held"))
        engine.inbox.act(item.id, "release", by="ann", proof=SECRET)
    listed = run("inbox", "--store", url).stdout
    assert "ann: release, not carried out" in listed


def test_no_item_writes_to_the_terminal_what_a_terminal_obeys(run, url):
    """Whatever an exception's text, an operation's name or a reason holds."""
    evil = "a\x1b[2Jb\rc"
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        item = engine.inbox.put(Item(kind="exhausted", subject="e", operation=evil, text=evil))
        listed = run("inbox", "--store", url)
        engine.inbox.act(item.id, "abandon", by="ann", proof=SECRET, why=evil)
    late = run(
        "inbox", "retry", item.id, "--as", "ann", "--store", url, MAINSTAY_OPERATOR_SECRET=SECRET
    )
    for done in (listed, late, run("inbox", "show", item.id, "--store", url)):
        said = done.stdout + done.stderr
        assert "\\x1b[2Jb" in said
        assert not {"\x1b", "\r"} & set(said)


def test_help_has_an_example(run):
    """Each command, with what it does."""
    for words in (
        ["inbox"], ["inbox", "done"], ["inbox", "show"], ["operators"], ["operators", "add"],
        ["operators", "disable"], ["operators", "passwd"],
    ):  # fmt: skip
        done = run(*words, "--help")
        assert done.returncode == 0
        assert "$ mainstay" in done.stdout


def test_no_name_writes_to_the_terminal_what_a_terminal_obeys(run, url):
    """Neither where it is listed nor in what came of an act."""
    name = "op\x1b]0;pwn\x07\u202e"
    with Engine(url, sinks=[], breaker=BreakerSettings(failure_threshold=1)) as engine:
        engine.run(name, int)
        engine.catch_up()
        item = engine.inbox.put(Item(kind="exhausted", subject="q", operation=name, text=name))
    order = ("--as", "ann", "--why", name)
    for words in (
        ("status",), ("inbox",), ("inbox", "retry", item.id, *order), ("inbox", "show", item.id),
        ("circuits",), ("circuits", "open", name, *order), ("circuits", "show", name), ("status",),
    ):  # fmt: skip
        done = run(*words, "--store", url, MAINSTAY_OPERATOR_SECRET=SECRET)
        assert done.returncode == 0, done.stderr
        assert "op" in done.stdout
        assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout), words


def damage(url):
    """Puts a record that cannot be read before those of every space."""
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        row = "INSERT INTO mainstay_kept (space, key, value) VALUES (?, ?, ?)"
        for space in ("inbox", "operators", "circuits"):
            connection.execute(row, (space, "0000000000000000", b"{bad"))
        connection.execute(row, ("records", "0", b'{"state": "running"'))
    connection.close()


@pytest.mark.parametrize("words", [("inbox",), ("operators",), ("circuits",), ("status",)])
def test_a_damaged_record_is_said_and_the_others_are_shown(run, url, words):
    """On stderr, without a traceback; what is for programs stays whole."""
    item = only_item(url)
    damage(url)
    done = run(*words, "--json", "--store", url)
    assert done.returncode == 0, done.stderr
    assert "is passed over" in done.stderr
    assert "Traceback" not in done.stderr
    shown = {"inbox": item.id, "operators": "ann", "circuits": "[]", "status": item.id}[words[0]]
    assert shown in done.stdout
    json.loads(done.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ("inbox", "show", "0000000000000000"),
        ("inbox", "retry", "0000000000000000", "--as", "ann"),
        ("operators", "disable", "0000000000000000", "--as", "ann"),
        ("circuits", "show", "0000000000000000"),
        ("circuits", "open", "0000000000000000", "--as", "ann", "--why", "so"),
    ],
)
def test_a_damaged_record_is_told_as_such(run, url, words):
    """It is no bug of ours."""
    damage(url)
    done = run(*words, "--store", url, MAINSTAY_OPERATOR_SECRET=SECRET)
    assert done.returncode == 1, done.stderr
    assert "is damaged" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("inbox", "show", b"\xff"), 1),
        (("inbox", "abandon", "ITEM", "--as", "ann", "--why", b"see \xff"), 0),
        (("inbox", "done", "ITEM", "--as", "ann", "--evidence", b'"\xff"'), 1),
        (("inbox", "done", "ITEM", "--as", b"a\xff", "--evidence", "1"), 1),
        (("circuits", "open", b"\xff", "--as", "ann", "--why", "so"), 1),
        (("operators", "add", b"\xff", "--as", "ann"), 2),
    ],
)
def test_bytes_that_are_no_text_are_no_bug(run, url, words, code):
    """A command line may hold any."""
    item = only_item(url)
    given = [item.id if word == "ITEM" else word for word in words]
    secrets = {"MAINSTAY_OPERATOR_SECRET": SECRET, "MAINSTAY_NEW_SECRET": SECRET}
    done = run(*given, "--store", url, **secrets)
    assert done.returncode == code, done.stderr
    assert "internal error" not in done.stderr
