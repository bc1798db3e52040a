"""The monitoring that is shipped: it names what the sink exports, and its alerts fire."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from mainstay.sinks.metrics.catalogue import METRICS
from mainstay.sinks.prometheus import PrometheusSink
from tests.servers.promtool import promtool
from tools import monitoring_doc

__all__ = ["promtool"]

HOW = "run .venv/bin/python tools/monitoring_doc.py --write"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load(monitoring_doc.ALERTS.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def test_what_is_shipped_is_what_the_source_says():
    """The rules, the board and the table of the page."""
    assert monitoring_doc.ALERTS.read_text(encoding="utf-8") == monitoring_doc.alerts(), HOW
    assert monitoring_doc.DASHBOARD.read_text(encoding="utf-8") == monitoring_doc.dashboard(), HOW
    page = monitoring_doc.PAGE.read_text(encoding="utf-8")
    assert page == monitoring_doc.page(page), HOW
    assert all(f"| `{name}` |" in page for name in METRICS)


def exported():
    """Every series that the sink can export."""
    sink = PrometheusSink(CollectorRegistry())
    made = [metric.describe()[0] for metric in sink._metrics.values()]
    names = set()
    for family in [*made, *sink._collector.describe()]:
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        names |= {family.name + ending for ending in endings.get(family.type, [""])}
    return names


@pytest.mark.parametrize("path", [monitoring_doc.ALERTS, monitoring_doc.DASHBOARD], ids=str)
def test_every_metric_that_is_named_is_one_the_sink_exports(path):
    """A board of empty panels, or an alert that can never fire, would look like health."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    named = set()
    for expression in find("expr", found):
        plain = re.sub(r'"[^"]*"', "", expression).replace("job_operation:mainstay_success", "")
        named |= set(re.findall(r"\b(?:mainstay|effect)_\w+", plain)) - {"effect_type"}
    assert named
    assert named - exported() == set()


def find(key, found):
    """Every value of a key, however deep."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name == key:
                yield value
            else:
                yield from find(key, value)
    elif isinstance(found, list):
        for each in found:
            yield from find(key, each)


def test_every_metric_is_on_the_board():
    """What is counted is shown; the success ratio by its recorded rule."""
    text = monitoring_doc.DASHBOARD.read_text(encoding="utf-8")
    assert {name for name in METRICS if name not in text} == {"mainstay_success_ratio"}
    assert "job_operation:mainstay_success:ratio_rate5m" in text


def test_the_board_is_one_that_grafana_takes():
    """Panels have ids and places of their own, and a data source that can be chosen."""
    board = json.loads(monitoring_doc.DASHBOARD.read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(board["panels"])
    sources = {panel["datasource"]["uid"] for panel in board["panels"]}
    assert sources == {"${" + board["templating"]["list"][0]["name"] + "}"}


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("rate(mainstay_luck_total[5m])", ["metric mainstay_luck_total"]),
        ("mainstay_store_seconds", ["metric mainstay_store_seconds"]),
        ("mainstay_calls_total_bucket", ["metric mainstay_calls_total_bucket"]),
        ('mainstay_calls_total{tenant="a"}', ["label tenant"]),
        ("sum by (call_id) (effect_retry_total)", ["label call_id"]),
        ('sum by (le, job) (mainstay_store_seconds_bucket{step="read"})', []),
    ],
)
def test_an_expression_is_held_against_the_catalogue(expression, wrong):
    """Metrics and labels that do not exist are found before anybody waits for their alert."""
    assert monitoring_doc.mistakes(expression) == wrong


def test_every_alert_says_what_to_do():
    """A severity, a summary and a next step."""
    for name, rule in RULES.items():
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        assert rule["annotations"]["summary"], name
        assert rule["annotations"]["description"].endswith((".", "?")), name
    page = monitoring_doc.PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"`(Mainstay\w+)`", page)) <= set(RULES)


def test_prometheus_takes_the_rules(promtool):
    """As promtool checks them."""
    run = [promtool, "check", "rules", str(monitoring_doc.ALERTS)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS: 18 rules found" in done.stdout


def calls(outcome, values, operation="pay"):
    labels = f'operation="{operation}",outcome="{outcome}"'
    return f'mainstay_calls_total{{job="shop",{labels}}}', values


def series(name, values, **labels):
    inside = ",".join(f'{label}="{value}"' for label, value in {"job": "shop", **labels}.items())
    return f"{name}{{{inside}}}", values


OPERATION, ENGINE = {"operation": "pay"}, {"engine": "main"}
CIRCUIT = {**ENGINE, "circuit": "pay"}
SINK = {**ENGINE, "sink": "AuditSink"}
STEP = {"store": "sqlite", "step": "transact"}
EFFECT = {"effect_type": "vault"}

# Alert: what makes it fire, what does not, after how many minutes, and the labels it has.
CASES = {
    "MainstayCallsFail": (
        [calls("success", "0+80x20"), calls("exhausted", "0+20x20")],
        [calls("success", "0+95x20"), calls("failed", "0+5x20"), calls("cancelled", "0+90x20")],
        15, OPERATION,
    ),
    "MainstayRetryStorm": (
        [calls("success", "0+50x20"), series("mainstay_retries_total", "0+30x20", **OPERATION)],
        [calls("success", "0+50x20"), series("mainstay_retries_total", "0+20x20", **OPERATION)],
        15, OPERATION,
    ),
    "MainstayRetriesExhausted": (
        [calls("exhausted", "0+4x20")], [calls("exhausted", "0+1x20")], 10, OPERATION,
    ),
    "MainstayCircuitOpen": (
        [series("mainstay_circuit_state", "2x20", **CIRCUIT)],
        [series("mainstay_circuit_state", "1x20", **CIRCUIT)],
        5, CIRCUIT,
    ),
    "MainstayCircuitFlaps": (
        [series("mainstay_circuit_changes_total", "0+1x20", circuit="pay", state="open")],
        [series("mainstay_circuit_changes_total", "0+9x20", circuit="pay", state="closed")],
        15, {"circuit": "pay"},
    ),
    "MainstayBudgetSpent": (
        [series("mainstay_budget_denied_total", "0+1x20", **OPERATION)],
        [series("mainstay_budget_denied_total", "7x20", **OPERATION)],
        15, OPERATION,
    ),
    "MainstayStoreSlow": (
        [series("mainstay_store_seconds_bucket", "0x20", le="0.5", **STEP),
         series("mainstay_store_seconds_bucket", "0+9x20", le="1", **STEP),
         series("mainstay_store_seconds_bucket", "0+9x20", le="+Inf", **STEP)],
        [series("mainstay_store_seconds_bucket", "0+9x20", le="0.5", **STEP),
         series("mainstay_store_seconds_bucket", "0+9x20", le="+Inf", **STEP)],
        15, {"store": "sqlite"},
    ),
    "MainstayStoreFails": (
        [series("mainstay_store_seconds_count", "0+1x20", outcome="error", **STEP)],
        [series("mainstay_store_seconds_count", "0+9x20", outcome="ok", **STEP)],
        15, {"store": "sqlite"},
    ),
    "MainstayLeaseLost": (
        [series("mainstay_idempotency_total", "0x8 1x10", result="lost", **ENGINE)],
        [series("mainstay_idempotency_total", "0+9x20", result="hit", **ENGINE)],
        10, ENGINE,
    ),
    "MainstayOutcomeUnknown": (
        [series("mainstay_idempotency_total", "0x8 1x10", result="unknown", **ENGINE)],
        [series("mainstay_idempotency_total", "1x20", result="unknown", **ENGINE)],
        10, ENGINE,
    ),
    "MainstayResultNotKept": (
        [series("mainstay_idempotency_total", "0x8 1x10", result="not_kept", **ENGINE)],
        [series("mainstay_idempotency_total", "0+9x20", result="record", **ENGINE)],
        10, ENGINE,
    ),
    "MainstayFileReplaced": (
        [series("mainstay_files_replaced_total", "0x8 1x20")],
        [series("mainstay_files_replaced_total", "0x30")],
        10, {},
    ),
    "MainstayEventsLost": (
        [series("mainstay_sink_lost_total", "0x8 5x10", **SINK)],
        [series("mainstay_sink_lost_total", "5x20", **SINK)],
        10, SINK,
    ),
    "MainstayEventsSpilled": (
        [series("mainstay_sink_spilled_total", "0+9x40", **SINK)],
        [series("mainstay_sink_spilled_total", "0x5 9x40", **SINK)],
        30, SINK,
    ),
    "MainstayOutboxOld": (
        [series("mainstay_outbox_age_seconds", "0+60x20", **ENGINE)],
        [series("mainstay_outbox_age_seconds", "60x20", **ENGINE)],
        15, ENGINE,
    ),
    "MainstayCompensationFailed": (
        [series("effect_compensation_total", "_x8 1x10", outcome="failure", **EFFECT)],
        [series("effect_compensation_total", "0+9x20", outcome="success", **EFFECT)],
        10, EFFECT,
    ),
    "MainstayPartialFailure": (
        [series("effect_partial_failure_total", "_x8 1x30", **EFFECT)],
        [series("effect_partial_failure_total", "1x40", **EFFECT)],
        20, EFFECT,
    ),
}  # fmt: skip


def case(alert, given, minutes, fires):
    """One unit test of promtool; it is told the labels, and the annotations as they come out."""
    expected = {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": fires}
    written = [{"series": name, "values": values} for name, values in given]
    return {"interval": "1m", "input_series": written, "alert_rule_test": [expected]}


def run_cases(promtool, folder, cases):
    file = folder / "unit.yml"
    rules = {"rule_files": [str(monitoring_doc.ALERTS)], "evaluation_interval": "1m"}
    file.write_text(yaml.safe_dump({**rules, "tests": cases}), encoding="utf-8")
    run = [promtool, "test", "rules", str(file)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_no_alert_is_without_a_case():
    """A rule that nobody has seen fire is a hope."""
    assert set(CASES) == set(RULES)


def test_every_alert_is_quiet_where_all_is_well(promtool, tmp_path: Path):
    """Something of the kind happens, and it is no reason."""
    quiet = [case(alert, calm, minutes, []) for alert, (_, calm, minutes, _) in CASES.items()]
    code, said = run_cases(promtool, tmp_path, quiet)
    assert code == 0, said


def test_every_alert_fires_where_something_is_wrong(promtool, tmp_path: Path):
    """With its severity, and the labels by which somebody finds what it is about."""
    asked = [case(alert, wrong, minutes, []) for alert, (wrong, _, minutes, _) in CASES.items()]
    code, said = run_cases(promtool, tmp_path, asked)  # none is expected, so it tells which fired
    assert code != 0
    fired = {
        found[1]: found[2]
        for found in re.finditer(r"alertname: (\w+).*?got:\[\s*(.*?)\n\s*\]", said, re.DOTALL)
    }
    assert set(fired) == set(CASES), said
    for alert, (_, _, _, labels) in CASES.items():
        severity = RULES[alert]["labels"]["severity"]
        for label, value in {"job": "shop", "severity": severity, **labels}.items():
            assert f'{label}="{value}"' in fired[alert], alert
