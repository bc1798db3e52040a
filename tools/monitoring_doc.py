"""The monitoring that is shipped, made from tools/monitoring.yml and the catalogue of metrics.

    python tools/monitoring_doc.py            print the table of metrics
    python tools/monitoring_doc.py --write    write docs/monitoring/ and the table of the page

Makes Prometheus' alert rules (docs/monitoring/mainstay-alerts.yml), a Grafana dashboard
(docs/monitoring/mainstay-dashboard.json) and the table of docs/how-to/monitoring.md. A rule or a
panel that names a metric or label which is not in the catalogue is an error.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mainstay.sinks.metrics.catalogue import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "monitoring"
ALERTS = FOLDER / "mainstay-alerts.yml"
DASHBOARD = FOLDER / "mainstay-dashboard.json"
PAGE = ROOT / "docs" / "how-to" / "monitoring.md"
HOW = "Made by tools/monitoring_doc.py; edit tools/monitoring.yml, then run it with --write."
START, END = f"<!-- metrics: {HOW} -->", "<!-- end of metrics -->"

SOURCE: dict[str, Any] = yaml.safe_load((ROOT / "tools" / "monitoring.yml").read_text("utf-8"))
RECORDED: dict[str, str] = SOURCE["recorded"]


def alerts() -> str:
    """The rules as a file of Prometheus."""
    rules = [
        {
            "alert": rule["alert"],
            "expr": rule["expr"],
            "for": rule["for"],
            "labels": {"severity": rule["severity"]},
            "annotations": {"summary": rule["summary"], "description": rule["description"]},
        }
        for rule in SOURCE["alerts"]
    ]
    records = [{"record": name, "expr": expression} for name, expression in RECORDED.items()]
    groups = [
        {"name": "mainstay-recorded", "rules": records},
        {"name": "mainstay-alerts", "rules": rules},
    ]
    text: str = yaml.safe_dump({"groups": groups}, sort_keys=False, width=1000)
    return f"# {HOW}\n{text}"


def dashboard() -> str:
    """The board as Grafana imports it."""
    board = {
        "title": "mainstay",
        "uid": "mainstay",
        "description": HOW,
        "tags": ["mainstay"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_source()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(SOURCE["panels"])],
    }
    return json.dumps(board, indent=2) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _panel(number: int, panel: dict[str, Any]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    targets = [
        {"refId": chr(65 + index), "datasource": source, "expr": each["expr"],
         "legendFormat": each["legend"]}
        for index, each in enumerate(panel["targets"])
    ]  # fmt: skip
    return {
        "id": number + 1,
        "title": panel["title"],
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
        "targets": targets,
    }


def expressions() -> Iterator[str]:
    """Every expression of the rules and the board."""
    yield from RECORDED.values()
    yield from (rule["expr"] for rule in SOURCE["alerts"])
    for panel in SOURCE["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def mistakes(expression: str) -> list[str]:
    """What an expression names that is not in the catalogue.

    >>> mistakes('sum by (operation, tenant) (rate(mainstay_calls_total[5m]))')
    ['label tenant']
    """
    plain = re.sub(r'"[^"]*"', '""', expression)
    for name in RECORDED:
        plain = plain.replace(name, "mainstay_calls_total")
    named = set(re.findall(r"\b(?:mainstay|effect)_\w+", plain)) - {"effect_type"}
    wrong = [f"metric {name}" for name in sorted(named) if _metric_of(name) is None]
    known = {label for name in named for label in _labels_of(name)} | {"job", "le"}
    grouped = [
        each for group in re.findall(r"\bby \(([^)]*)\)", plain) for each in group.split(",")
    ]
    matched = re.findall(r"(\w+)(?:=|!=|=~|!~)\"", plain)
    used = {label.strip() for label in [*grouped, *matched]}
    return wrong + [f"label {label}" for label in sorted(used - known)]


def _metric_of(name: str) -> str | None:
    """The metric that a series belongs to; a histogram has three."""
    if name in METRICS and METRICS[name].kind != "histogram":
        return name
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    is_series = base != name and base in METRICS and METRICS[base].kind == "histogram"
    return base if is_series else None


def _labels_of(name: str) -> tuple[str, ...]:
    metric = _metric_of(name)
    return METRICS[metric].labels if metric is not None else ()


def table() -> str:
    """Every metric, for the page."""
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        text = f"{metric.text}; read when asked" if metric.is_read else metric.text
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {text} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    return f"{before}{START}\n{table()}\n{END}{after}"


def main() -> int:
    """Prints the table, or writes everything."""
    parser = argparse.ArgumentParser(description="the monitoring that is shipped")
    parser.add_argument("--write", action="store_true", help="write docs/monitoring and the table")
    wrong = [found for each in expressions() for found in mistakes(each)]
    if wrong:
        print(f"not in the catalogue: {', '.join(wrong)}", file=sys.stderr)
        return 1
    if not parser.parse_args().write:
        print(table())
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    ALERTS.write_text(alerts(), encoding="utf-8")
    DASHBOARD.write_text(dashboard(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
