"""Every field: one declaration for the checker, the JSON Schema and the reference."""

from __future__ import annotations

from mainstay.config.retry_fields import BREAKER, MOST, NAMED_BREAKER, POLICY
from mainstay.config.shapes import (
    Anything,
    Either,
    Field,
    Flag,
    Listing,
    NameMap,
    Number,
    Section,
    Text,
    Whole,
    duration,
)
from mainstay.core.analytics.alert_names import GROUPS, METRICS
from mainstay.core.base.validate import MAX_SECONDS, MIN_WINDOW
from mainstay.core.retry.policy_fields import NESTED_MODES
from mainstay.ports import ABILITIES

SCHEMES = (
    "memory", "sqlite", "postgresql", "postgres", "redis", "rediss", "valkey", "valkeys", "nats",
    "tls",
)  # fmt: skip
"""The stores that Engine knows; tests/config compares."""
SINKS = ("logging", "jsonl", "nats", "prometheus", "otel", "audit")
PRESETS = ("aws", "grpc")

_BREAKER_MEANS = "a circuit of its own for each operation"

RETRY = Section(
    Field("default_policy", Text(), "the policy of operations that nothing else names", "standard",
          also=[("default", Text())]),
    Field("nested", Text(choices=NESTED_MODES),
          "a failure that a retry inside gave up on; for policies without their own `nested`",
          "collapse"),
    Field("policies", NameMap(POLICY, what="policy"),
          "policies by name; `standard` is built in", "`standard`"),
    Field("operation_policies", NameMap(Text(), what="operation"),
          "operations to policies: a name, else the first pattern (`db.*`) that matches, else the"
          " policy of the operation's name, else the default", "none",
          also=[("operations", NameMap(Text(), what="operation"))]),
    Field("circuit_breaker", BREAKER, _BREAKER_MEANS + "; the same as `circuitBreaker`", "none"),
)  # fmt: skip

BREAKERS = Section(
    Field("default", BREAKER, _BREAKER_MEANS + "; the same as `circuitBreaker`", "none"),
    Field("global", BREAKER, "one circuit for every operation", "none"),
    Field(
        "named", NameMap(NAMED_BREAKER, what="circuit"), "circuits that operations share", "none"
    ),
)

_ENABLED = Field("enabled", Flag(), "false leaves the section out", "true")
_TOKENS = Number(0.0, MOST)
BUDGETS = Section(
    Field("retries", Section(
        Field("ratio", Number(0.0, 1.0), "retries per call", "0.2"),
        Field("floor", Whole(0, MOST), "retries that are always allowed in a window", "10"),
        duration("window", "over which both are counted", "10 s", low=MIN_WINDOW),
    ), "retries as a share of the calls", "none"),
    Field("tokens", Section(
        Field("preset", Text(choices=PRESETS), "the rules of the AWS SDKs, or of gRPC", "aws"),
        Field("capacity", Number(0.001, MOST), "tokens at first, and at most", "500"),
        Field("cost", _TOKENS, "what a retry takes", "5"),
        Field("timeout_cost", _TOKENS, "what a retry takes after a timeout", "10"),
        Field("refund", _TOKENS, "what a retry that succeeds brings back", "what it took"),
        Field("success_refund", _TOKENS, "what a call that succeeds at once brings back", "1"),
        Field("failure_cost", _TOKENS, "what each refused attempt takes", "0"),
        Field("reserve", _TOKENS, "retries are made while there are more than these", "0"),
        text="preset",
    ), "tokens that retries use up and successes bring back", "none"),
    Field("rate", Section(
        Field("per_second", Number(1e-5, MOST), "how many retries start in a second", "10"),
        Field("burst", Whole(1, MOST), "how many may start at once", "10"),
        duration("max_wait", "a retry that would wait longer is not made", "30 s"),
        Field("first_calls", Flag(), "whether first attempts wait for a turn, too", "false"),
        number="per_second",
    ), "how many retries start in a second", "none"),
    Field("throttle", Section(
        _ENABLED,
        Field("k", Number(1.0, 1000.0), "the strictness; 1 is the strictest", "2"),
        duration("window", "over which attempts are counted", "120 s", low=MIN_WINDOW),
        Field("floor", Whole(1, MOST), "with fewer attempts none is held back", "10"),
        flag="enabled",
    ), "holds calls back from a service that refuses most of them", "none"),
    Field("memory", Section(
        Field("limit", Either(Whole(1, 2**63 - 1), Text(
            pattern=r"[0-9]+(?:\.[0-9]*)?\s*(?:[KkMmGgTt]?[Ii]?[Bb]|%)",
            expected='a size such as "512MB", "1.5GiB" or "80%"')), "bytes, or a share"),
        text="limit", number="limit", needs=["limit"],
    ), "starts no retry while the process uses more memory", "none"),
)  # fmt: skip

_URL = Text(
    pattern=rf"(?:{'|'.join(SCHEMES)})://[^\s]*",
    expected="the URL of a store: memory://, sqlite:///file.db, postgresql://…, redis://… or nats://…",
)
STORE = Section(
    Field("url", _URL, "where records are kept", "memory://"),
    duration("share", "between two steps in which circuits and budgets are shared; null for never",
             "1 s", low=0.01, high=3600.0, optional=True),
    duration("wait", "how long a keyed call waits for an unavailable store", "0 s", high=3600.0),
    Field("max_result", Whole(1, 1 << 50, optional=True),
          "bytes of a result of a keyed call that are kept at most; null for what the store takes",
          "67108864"),
    duration("purge", "between two purges of expired records; null for never", "5 min", low=1.0,
             high=86_400.0, optional=True),
    Field("needs", Listing(Text(choices=tuple(ABILITIES)), or_one=True),
          "what the store must be able to do", "nothing"),
    text="url",
)  # fmt: skip

SINK = Section(_ENABLED, is_open=True, flag="enabled")
_SINK_MEANS = {
    "logging": "the standard log; on, unless it is false",
    "jsonl": "a file of JSON lines",
    "nats": "a NATS subject",
    "prometheus": "metrics for Prometheus",
    "otel": "OpenTelemetry's traces and metrics",
    "audit": "an audit log besides the engine's own",
}
SINKS_SECTION = Section(*(Field(name, SINK, _SINK_MEANS[name], "none") for name in SINKS))

AUDIT = Section(
    _ENABLED,
    Field("where", Text(), "the log: sqlite:///…, postgresql://…, or the path of a .jsonl file",
          "the engine's own store"),
    Field("durability", Text(choices=("buffered", "call")),
          "written within 100 ms or so, or before the call goes on", "buffered"),
    Field("key", Text(is_secret=True), "the path of the Ed25519 key that signs heads", "none"),
    Field("heads", Listing(Text(), or_one=True),
          "where heads are brought besides the log: paths, or log:NAME", "nowhere"),
    Field("every", Whole(1, 1_000_000_000), "records between two heads", "1000"),
    duration("keep", "for how long records are kept", "for ever", above=True, optional=True),
    Field("rotate", Whole(1, 1 << 50, optional=True), "bytes after which a file is ended", "never"),
    Field("strict", Flag(), "a call whose event is not written fails", "false"),
    Field("spill", Either(Flag(), Text()), "the folder for what cannot be written; false for none",
          "the user's own"),
    Field("successes", Flag(), "record calls that never failed too", "false"),
    text="where", flag="enabled",
)  # fmt: skip

REDACTION = Section(
    Field("patterns",
          Listing(Text(pattern=r"[\s\S]+", expected="a regular expression"), or_one=True),
          "what these match is secret", "none"),
    Field("fields", Listing(Text(), or_one=True), "the values under these names are secret",
          "none"),
    Field("builtin", Flag(), "also look for what is known to be secret", "true"),
    Field("secrets",
          Listing(Text(pattern=r"[\s\S]+", expected="a text that is not empty", is_secret=True),
                  or_one=True),
          "values that are secret wherever they stand, such as ${NAME}", "none"),
)  # fmt: skip

_LEVEL = Number(0.0, MAX_SECONDS)
ALERT_RULE = Section(
    Field("name", Text(), "the name of the alert"),
    Field("metric", Text(choices=METRICS), "the metric that it checks"),
    Field("above", _LEVEL, "fires if the metric is greater; this or `below`"),
    Field("below", _LEVEL, "fires if the metric is less"),
    duration("window", "over which the metric is taken", "60 s", low=1.0, high=86_400.0),
    Field("minimum", Whole(1, 1_000_000_000), "calls or events the window must hold", "1"),
    Field("per", Text(choices=GROUPS), "an alert for each of these apart", "all together"),
    Field("for_seconds", Number(0.0, 86_400.0, unit=" of seconds"),
          "for how long the metric must be past the threshold", "0"),
    Field("clear", _LEVEL, "where the alert clears", "a fifth inside the threshold"),
    needs=["name", "metric"],
)  # fmt: skip
ALERTS = Section(
    Field("rules", Listing(ALERT_RULE), "when to raise an alert", "none"),
    duration("interval", "between two checks of the rules", "1 s", low=0.01, high=3600.0),
    Field("logger", Text(), "the logger that alerts are written to", "mainstay"),
    Field("inbox", Flag(), "an item for each alert that fires", "true"),
)

_SECRET = Text(pattern=r"[\s\S]+", expected="a text that is not empty", is_secret=True)
WEBHOOK = Section(
    Field(
        "url", Text(pattern=r"https?://\S+", expected="an http:// or https:// URL"), "where to send"
    ),
    Field("secret", _SECRET, "signs what is sent", "not signed"),
    duration("timeout", "the time of one attempt", "5 s", above=True, high=3600.0),
    Field("allow_local", Flag(), "targets on this machine: loopback, link-local", "false"),
    text="url",
    needs=["url"],
)
EMAIL = Section(
    Field("host", Text(), "the SMTP server"),
    Field("port", Whole(1, 65_535), "its port", "587; tls: 465"),
    Field("security", Text(choices=("starttls", "tls", "none")), "how the line is protected",
          "starttls"),
    Field("user", Text(), "the user who signs in", "none"),
    Field("password", _SECRET, "the password", "none"),
    Field("sender", Text(), "the sender of the mail", also=[("from", Text())]),
    Field("to", Listing(Text(), or_one=True), "the recipients"),
    needs=["host", "sender", "to"],
)  # fmt: skip
INBOX = Section(
    Field("escalate", Flag(), "an item for each call that is given up", "false"),
    Field("notify", Section(
        Field("webhook", WEBHOOK, "a signed HTTP request for each new item", "none"),
        Field("email", EMAIL, "a mail for each new item", "none"),
    ), "where new items are sent", "nowhere"),
)  # fmt: skip

_PUBLISHED = "nats|tls|kafka|amqps?|rediss?|valkeys?|https?"
OUTBOX = Section(
    Field("url", Text(pattern=r"(?:sqlite|postgresql|postgres)://[^\s]*",
                      expected="the URL of a database: sqlite:///file.db or postgresql://…"),
          "the database of your application that has the outbox", "that of the store"),
    Field("publish", Text(pattern=rf"(?:{_PUBLISHED})://[^\s]+|python:[^\s]+",
                          expected="the URL of a broker: nats://…, kafka://…, amqp://…, redis://…,"
                          " https://… or python:module:function"),
          "the broker that `mainstay outbox relay` publishes to", "none"),
)  # fmt: skip

CONFIG = Section(
    Field("retry", RETRY, "policies, and which operation runs under which"),
    Field("circuit_breaker", BREAKER, _BREAKER_MEANS, "none"),
    Field("breakers", BREAKERS, "circuits: of each operation, of several, of all"),
    Field("budgets", BUDGETS, "limits that keep retries from overloading a service"),
    Field("store", STORE, "where records are kept", "memory://"),
    Field("sinks", SINKS_SECTION, "what receives the events", "logging"),
    Field("audit", AUDIT, "the audit log", "on, if the store can keep it"),
    Field("redaction", REDACTION, "what is secret in your data, besides the usual"),
    Field("alerts", ALERTS, "rules that raise alerts"),
    Field("inbox", INBOX, "items that an operator must decide about"),
    Field("outbox", OUTBOX, "messages that are added in a transaction and published"),
    has_extras=True,
)
"""The whole of it. Keys that begin with `x-` are passed over: they may hold anchors."""

ANYTHING = Anything()
