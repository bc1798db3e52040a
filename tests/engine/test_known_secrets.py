"""What a configuration, a URL or an environment holds as a secret is hidden in every text."""

import pytest

from mainstay import Engine, Redactor, RetryPolicy
from mainstay.core.events.describe import usual_redactor
from mainstay.errors import ConfigError
from mainstay.runtime.reports.known_secrets import know_environment, know_secret, know_url
from mainstay.sinks.notify.webhook import NotifyWebhook
from tests.plants import only_knowing

POLICY = RetryPolicy(name="api", max_attempts=1)


@pytest.fixture(autouse=True)
def nothing_known():
    """Each test begins with a process that knows nothing."""
    with only_knowing():
        yield


@pytest.fixture
def configured(tmp_path):
    """What is shown of a text by a process that has read a configuration."""

    def read(text, **env):
        path = tmp_path / "mainstay.yml"
        path.write_text(text, "utf-8")
        Engine.from_config(path, env=env).close()
        return usual_redactor().text

    return read


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
def test_what_a_variable_holds_is_hidden_if_its_name_is_a_secret_one(
    configured, tmp_path, monkeypatch
):
    """Though its place in the configuration is none; another variable's value stays."""
    monkeypatch.chdir(tmp_path)
    shown = configured(
        "outbox: {url: 'sqlite:///${SHOP_TOKEN}.db'}\nstore: 'sqlite:///${PLACE}.db'\n",
        SHOP_TOKEN="x9Qz-1aP",
        PLACE="k7Zw-2bQ",
    )
    assert shown("a x9Qz-1aP at k7Zw-2bQ") == "a [redacted] at k7Zw-2bQ"


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
def test_what_stands_under_a_secret_name_is_hidden(configured):
    """Whether it is written there or comes from a variable."""
    shown = configured(
        "inbox: {notify: {webhook: {url: 'https://example.org/h', secret: '${SIGN}'}}}\n"
        "store: {url: 'memory://'}\n",
        SIGN="otter garden finch",
    )
    assert shown("got otter+garden+finch") == "got [redacted]"


def test_the_password_of_a_url_is_hidden_without_its_escapes(tmp_path):
    """Of a store, and of whatever else has a URL; the user and the host stay."""
    know_url("postgresql://ann:x9Qz%2D1aP@db.example.org/shop")
    shown = usual_redactor().text("ann sent x9Qz-1aP to db.example.org")
    assert shown == "ann sent [redacted] to db.example.org"
    know_url(f"{tmp_path}/no-url/x9Qz-1aP")


@pytest.mark.parametrize("password", ["postgres", "test", "secret12", "hunter2"])
def test_a_password_that_is_a_word_is_hidden_in_its_url_only(password):
    """Or half of each text would be."""
    know_url(f"postgresql://{password}:{password}@db/{password}")
    know_secret(password)
    text = f"the {password} of db"
    assert usual_redactor().text(text) == text


def test_a_store_and_a_webhook_of_an_engine_make_their_secrets_known(tmp_path):
    """Whatever made them."""
    place = f"sqlite:///{tmp_path}/a.db?token=x9Qz-1aP"
    with pytest.raises(Exception, match="token"):
        Engine(place)
    NotifyWebhook("https://example.org/h?key=1&token=k7Zw-2bQ", secret="otter-garden-finch").close()
    assert usual_redactor().text("x9Qz-1aP k7Zw-2bQ") == "[redacted] [redacted]"
    assert usual_redactor().text("otter-garden-finch") == "[redacted]"


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
def test_the_environment_is_read_once_when_a_text_is_shown(monkeypatch):
    """Variables with a secret name, and passwords in the URLs of others."""
    monkeypatch.setenv("SHOP_API_KEY", "x9Qz-1aP")
    monkeypatch.setenv("SHOP_KEY_FILE", "/run/keys/k7Zw-2bQ")
    monkeypatch.setenv("SHOP_PASSWORD", "postgres")
    monkeypatch.setenv("SHOP_PLACE", "m3Yv-4cR")
    monkeypatch.setenv("DATABASE_URL", "postgresql://ann:n5Xu-6dS@db/shop")
    know_environment()
    text = "x9Qz-1aP /run/keys/k7Zw-2bQ postgres m3Yv-4cR n5Xu-6dS"
    shown = "[redacted] /run/keys/k7Zw-2bQ postgres m3Yv-4cR [redacted]"
    assert usual_redactor().text(text) == shown
    monkeypatch.setenv("SHOP_API_KEY", "p8Wt-7eT")
    assert usual_redactor().text("p8Wt-7eT") == "p8Wt-7eT"
    assert Redactor().text(text) == shown
    assert Redactor(builtin=False).text(text) == text


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
def test_a_configuration_declares_secrets(configured):
    """A word too, since a person asks for it; of the engine and of every screen."""
    shown = configured(
        "redaction: {secrets: ['${NAME}', marigold]}\nstore: 'memory://'\n", NAME="otter-ga"
    )
    assert shown("a marigold, b3R0ZXItZ2E=") == "a [redacted], [redacted]="


def test_the_repr_of_settings_shows_no_secret(tmp_path):
    """Neither a declared one nor the password of a URL."""
    path = tmp_path / "mainstay.yml"
    path.write_text(
        "redaction: {secrets: [marigold-and-otter]}\n"
        f"store: 'sqlite:///{tmp_path}/a.db'\n"
        "inbox: {notify: {webhook: {url: 'https://ann:k7Zw-2bQ@example.org/h',"
        " secret: 'x9Qz-1aPm3Yv-4cR'}}}\n",
        "utf-8",
    )
    with Engine.from_config(path) as engine:
        shown = repr(engine.settings)
    assert "default='standard'" in shown
    assert [word for word in ("marigold", "k7Zw-2bQ", "x9Qz-1aP") if word in shown] == []


def test_a_declared_secret_that_is_too_short_is_a_problem(tmp_path):
    """With its line and the reason, and without the value."""
    path = tmp_path / "mainstay.yml"
    path.write_text("redaction:\n  secrets:\n    - marigold\n    - '${NAME}'\n", "utf-8")
    with pytest.raises(ConfigError, match="at least 8 characters") as caught:
        Engine.from_config(path, env={"NAME": "otter"})
    assert "otter" not in str(caught.value)
    assert "marigold" not in str(caught.value)
    assert "mainstay.yml" in str(caught.value)
