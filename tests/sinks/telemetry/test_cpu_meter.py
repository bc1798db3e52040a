"""The CPU time of retried calls: each its share, together never more than the thread's."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from mainstay.sinks.telemetry.cpu_meter import CpuMeter, Meters, thread_time


class Cpu:
    """A thread's CPU clock that is moved by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 100)), max_size=60))
def test_the_parts_never_come_to_more_than_the_whole(steps):
    """Whoever begins and ends when: what is attributed is what was used while anybody was there."""
    cpu = Cpu()
    meter = CpuMeter(cpu)
    begun, parts, used = {}, 0.0, 0.0
    for who, spent in steps:
        cpu.now += spent
        used += spent if begun else 0.0
        if who in begun:
            parts += meter.end() - begun.pop(who)
        else:
            begun[who] = meter.begin()
    parts += sum(meter.read() - start for start in begun.values())
    assert abs(parts - used) < 1e-6


def test_a_call_alone_has_all_of_it():
    """And nothing of what was used before it."""
    cpu = Cpu()
    meter = CpuMeter(cpu)
    cpu.now += 50.0
    start = meter.begin()
    cpu.now += 2.0
    assert meter.read() - start == 2.0


def test_another_thread_does_not_read_its_own_clock_into_it():
    """It hears what was known last; each thread has a meter of its own."""
    cpu = Cpu()
    meters = Meters(cpu)
    meter = meters.meter
    start = meter.begin()
    cpu.now += 2.0
    seen = []
    thread = threading.Thread(target=lambda: seen.extend([meter.read(), meters.meter is meter]))
    thread.start()
    thread.join(60)
    assert seen == [start, False]
    assert meter.end() - start == 2.0


def test_the_thread_clock_counts_computing_and_not_sleeping():
    """A wait costs next to nothing."""
    before = thread_time()
    threading.Event().wait(0.05)
    assert thread_time() - before < 0.04
