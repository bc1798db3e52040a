"""A diagram of what happened to a saga, as Mermaid text and as SVG."""

from __future__ import annotations

from xml.sax.saxutils import escape

from mainstay.core.base.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.saga.view import SagaView, StepView

_KINDS = {
    "pending": "pending",
    "started": "running",
    "undo_started": "running",
    "done": "done",
    "skipped": "undone",
    "failed": "failed",
    "in_doubt": "failed",
    "undo_done": "undone",
    "undo_skipped": "undone",
    "undo_failed": "failed",
}
_COLOURS = {
    "pending": ("#f4f4f4", "#8a8a8a"),
    "running": ("#fff3cd", "#a67c00"),
    "done": ("#d8f0dd", "#2d7a3e"),
    "failed": ("#f9d7d7", "#a12a2a"),
    "undone": ("#dce6f5", "#39599c"),
}
_WIDTH, _HEIGHT, _GAP, _MARGIN = 190, 54, 46, 20


def mermaid(view: SagaView) -> str:
    """The saga as a Mermaid flowchart: steps in their order, groups side by side.

    >>> from mainstay import Engine, Saga, SagaStep
    >>> with Engine(sinks=[]) as engine:
    ...     result = engine.sagas.run(Saga("transfer", [SagaStep("debit", lambda: 5)]), id="t-1")
    ...     drawn = mermaid(engine.sagas.get("transfer", "t-1"))
    >>> drawn.splitlines()[:2]
    ['flowchart TD', '    begin(["transfer t-1"])']
    """
    lines = ["flowchart TD", f'    begin(["{_quoted(view.saga)} {_quoted(view.id)}"])']
    numbers = {step.name: number for number, step in enumerate(view.steps)}
    for step in view.steps:
        label = f"{_quoted(step.name)}<br/>{_status(step)}"
        left, right = ('{{"', '"}}') if step.pivot else ('["', '"]')
        kind = _KINDS.get(step.status, "pending")
        lines.append(f"    s{numbers[step.name]}{left}{label}{right}:::{kind}")
    before = ["begin"]
    for group in _groups(view):
        names = [f"s{numbers[step.name]}" for step in group]
        lines.append(f"    {' & '.join(before)} --> {' & '.join(names)}")
        before = names
    ended = f'    ended(["{view.state}"])'
    lines += [ended, f"    {' & '.join(before)} --> ended"]
    for kind, (fill, stroke) in _COLOURS.items():
        lines.append(f"    classDef {kind} fill:{fill},stroke:{stroke},color:#222")
    return "\n".join(lines) + "\n"


def _groups(view: SagaView) -> list[list[StepView]]:
    groups: dict[int, list[StepView]] = {}
    for step in view.steps:
        groups.setdefault(step.group, []).append(step)
    return list(groups.values())


def _status(step: StepView) -> str:
    """What became of a step, in one short line."""
    text = step.status.replace("_", " ")
    if step.attempts > 1:
        text += f", {step.attempts} attempts"
    if step.seconds is not None:
        text += f", {step.seconds:.3g} s"
    return text


def _quoted(text: str) -> str:
    """Text for a label of Mermaid: what it would obey is written as the entity of its number.

    That is what ends a label, `%%{...}%%`, which configures it wherever it stands, and Markdown.
    What a terminal obeys is shown as an escape.
    """
    return printable(text.replace("\n", " ")).translate(_ENTITIES)


_ENTITIES = str.maketrans({sign: f"#{ord(sign)};" for sign in '#"<>&%{}`'})


def svg(view: SagaView) -> str:
    """The same as an SVG document, without a library.

    >>> from mainstay import Engine, Saga, SagaStep
    >>> with Engine(sinks=[]) as engine:
    ...     result = engine.sagas.run(Saga("transfer", [SagaStep("debit", lambda: 5)]), id="t-1")
    ...     svg(engine.sagas.get("transfer", "t-1"))[:4]
    '<svg'
    """
    groups = _groups(view)
    most = max((len(group) for group in groups), default=1)
    width = 2 * _MARGIN + most * _WIDTH + (most - 1) * _GAP
    rows = len(groups) + 2
    height = 2 * _MARGIN + rows * _HEIGHT + (rows - 1) * _GAP
    middle = width / 2
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    fonts = 'font-family="sans-serif" font-size="13"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {fonts}>']
    parts += _box(middle, 0, f"{view.saga} {view.id}", f"version {view.version}", "pending", 27)
    before = [middle]
    for row, group in enumerate(groups, 1):
        here = [
            middle + (number - (len(group) - 1) / 2) * (_WIDTH + _GAP)
            for number in range(len(group))
        ]
        parts += [_line(x, y, row) for x in before for y in here]
        for x, step in zip(here, group, strict=True):
            kind = _KINDS.get(step.status, "pending")
            name = f"{step.name} (pivot)" if step.pivot else step.name
            parts += _box(x, row, name, _status(step), kind, 4)
        before = here
    parts += [_line(x, middle, rows - 1) for x in before]
    parts += _box(middle, rows - 1, view.state, view.stuck or view.failure, "pending", 27)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _top(row: int) -> int:
    return _MARGIN + row * (_HEIGHT + _GAP)


def _line(x: float, to: float, row: int) -> str:
    """From the bottom of the row before to the top of this one."""
    return (
        f'<line x1="{x:g}" y1="{_top(row) - _GAP}" x2="{to:g}" y2="{_top(row)}" stroke="#8a8a8a"/>'
    )


def _box(x: float, row: int, name: str, text: str, kind: str, radius: int) -> list[str]:
    fill, stroke = _COLOURS[kind]
    top, left = _top(row), x - _WIDTH / 2
    size = f'x="{left:g}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="{radius}"'
    bold, small = 'font-weight="bold"', 'font-size="11"'
    return [
        f'<rect {size} fill="{fill}" stroke="{stroke}"/>',
        f'<text x="{x:g}" y="{top + 23}" text-anchor="middle" {bold}>{_shown(name)}</text>',
        f'<text x="{x:g}" y="{top + 41}" text-anchor="middle" {small}>{_shown(text)}</text>',
    ]


def _shown(text: str) -> str:
    """As much as fits into a box; what XML has no place for is left out."""
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return escape(text if len(text) <= 28 else text[:27] + "…")


GRAPHS = {"mermaid": mermaid, "svg": svg}
