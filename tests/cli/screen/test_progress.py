"""Progress: shown to a person after a second, to nobody else."""

import io
import sys

import pytest

from mainstay.cli.screen import progress


class Terminal(io.StringIO):
    """stderr, where somebody looks."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves by itself, so that nothing waits."""

    class Clock:
        now = 0.0
        step = 0.05

        def monotonic(self):
            self.now += self.step
            return self.now

    monkeypatch.setattr(progress, "time", Clock())
    return progress.time


def shown(monkeypatch, items, stream, **options):
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress.watched(range(items), "events", **options)) == list(range(items))
    return stream.getvalue().split("\r\x1b[K")[1:]


def test_a_long_reading_shows_how_far_it_is(clock, monkeypatch):
    """Not in the first second; then about five times a second; and the line is gone at the end."""
    lines = shown(monkeypatch, 200_000, Terminal())
    assert lines[-1] == ""
    first, *rest = lines[:-1]
    assert int(first.split()[0].replace(",", "")) >= 19 * progress._EVERY  # 0.95 s
    assert 10 < len(rest) < 25
    assert "a second" in first


def test_with_a_total_there_is_a_bar(clock, monkeypatch):
    lines = shown(monkeypatch, 200_000, Terminal(), total=200_000)
    assert "━" in lines[-2]
    assert "s to go" in lines[-2]


def test_a_short_reading_shows_nothing(clock, monkeypatch):
    clock.step = 0.0
    assert shown(monkeypatch, 20_000, Terminal()) == []


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_a_pipe_sees_none_of_it(clock, monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    assert len(list(progress.watched(range(200_000), "events"))) == 200_000
    assert stream is None or stream.getvalue() == ""


def test_the_line_goes_also_where_the_reading_fails(clock, monkeypatch):
    def broken():
        yield from range(100_000)
        raise OSError("gone")

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(OSError, match="gone"):
        list(progress.watched(broken(), "events"))
    assert stream.getvalue().endswith("\r\x1b[K")
