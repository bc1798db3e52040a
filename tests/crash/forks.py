"""Forks of a process that uses SQLite: what holds, with files outside the library as the oracle.

Each scenario is a program in a process of its own. An execution appends `key pid` to the file
`effects`, and a caller that received a result appends `key pid` to `answers`. Then another process
calls every key that was answered: it must replay, so no key may have a second line in `effects`.
`run_forks(count)` is the part of `make crash`: forks in a loop while threads and another process
write. Exits with 1 if a property was violated.
"""

# ruff: noqa: T201 -- a command prints

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]

PRELUDE = """
import os, sqlite3, sys, threading, time, traceback
import mainstay
from mainstay import Engine
from mainstay.errors import StoreUnavailable
where = os.environ.get("FORKS_FOLDER") or sys.argv[1]
url = f"sqlite:///{where}/kept.db?timeout=20"

def note(name, text):
    file = os.open(f"{where}/{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{text}\\n".encode())
    os.close(file)

def once(engine, key):
    def effect():
        note("effects", f"{key} {os.getpid()}")
        return key
    try:
        assert engine.operation("pay", key=key, idempotency="idempotent").call(effect) == key
    except StoreUnavailable as error:
        note("refused", f"{key} {error}")
        return False
    note("answers", f"{key} {os.getpid()}")
    return True

def in_child(work, end=os._exit, fork=os.fork):
    pid = fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:
        note("errors", traceback.format_exc().replace(chr(10), " | "))
    finally:
        end(0)

def fork_in_c():
    # Without Python's hooks. A thread that waits for the interpreter's lock at that moment stays in
    # the lock's condition variable in the child, whose own threads may then wait for ever, whatever
    # they run. So the parent looks, without giving the lock up, and ends such a child.
    import ctypes, signal
    c = ctypes.PyDLL(None)  # calls that keep the interpreter's lock
    sys.setswitchinterval(5.0)
    places = [(int(a, 16), int(b, 16)) for a, b in interpreter_places()]
    for _ in range(50):
        time.sleep(0.3)  # the threads rest by now; one that polls does not wake before the fork
        others = set(os.listdir("/proc/self/task")) - {str(threading.get_native_id())}
        paths = [f"/proc/self/task/{each}/syscall".encode() for each in others]
        page = ctypes.create_string_buffer(200)
        pid = c.fork()
        if not pid or not any(waits(c, each, page, places) for each in paths):
            return pid
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    raise AssertionError("at each of fifty forks a thread waited for the interpreter's lock")

def interpreter_places():
    # Its lock lies in the program's own data; a lock that Python code makes lies on the heap, and
    # from 3.13 on on the stack of the thread that waits: in a mapping without a name.
    file, end = "", ""
    for line in open("/proc/self/maps"):
        span, _, _, _, _, *name = line.split(maxsplit=5)
        first, last = span.split("-")
        if name:
            file = name[0].strip()
        elif first != end:  # no zeroed data of the file before it
            file = ""
        end = last
        folder, program = os.path.split(file)
        if "python" in program and "site-packages" not in folder and "lib-dynload" not in folder:
            yield first, last

def waits(c, path, page, places):
    file = c.open(path, os.O_RDONLY)
    if file < 0:
        return False  # the thread has ended
    size = c.read(file, page, 199)
    c.close(file)
    call, *arguments = page.raw[:max(size, 0)].split() or [b"ended"]
    if call == b"running":
        return True  # perhaps on its way into the lock
    return any(first <= int(each, 16) < last for each in arguments[:1] for first, last in places)

def reap(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""

REPLAY = """
engine = Engine(url)
for key in sorted({line.split()[0] for line in open(f"{where}/answers")}):
    once(engine, key)
engine.close()
check = sqlite3.connect(f"{where}/kept.db")
note("integrity", check.execute("PRAGMA integrity_check").fetchone()[0])
"""


def start(program: str, folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """A program after the prelude, in a process of its own."""
    code = PRELUDE + textwrap.dedent(program)
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code, str(folder), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": paths}, start_new_session=True,
    )  # fmt: skip


def run(program: str, folder: Path, *arguments: object, timeout: float = 120.0) -> str:
    """What a program prints; it must end by itself, without an error."""
    process = start(program, folder, *arguments)
    try:
        printed, complaints = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with its children, which have its pipes
        printed, complaints = process.communicate()
        raise AssertionError(f"it hung: {complaints}") from None
    assert process.returncode == 0, complaints
    return printed


def lines(folder: Path, name: str) -> list[str]:
    """What was noted in a file."""
    file = folder / name
    return file.read_text().splitlines() if file.exists() else []


def violations(folder: Path) -> list[str]:
    """Replays every answered key in another process, and names what does not hold."""
    answered = {line.split()[0] for line in lines(folder, "answers")}
    before = Counter(line.split()[0] for line in lines(folder, "effects"))
    if answered:
        run(REPLAY, folder)
    after = Counter(line.split()[0] for line in lines(folder, "effects"))
    found = [f"{key} ran again" for key in sorted(answered) if after[key] != before[key]]
    found += [f"{key} ran {after[key]} times" for key in sorted(answered) if after[key] != 1]
    found += [f"a child failed: {each}" for each in lines(folder, "errors")]
    return found + [f"integrity: {each}" for each in lines(folder, "integrity") if each != "ok"]


LOAD = """
import queue
count, seed = int(sys.argv[2]), int(sys.argv[3])
engine = Engine(url, share=0.05)
stop = threading.Event()

def load(name):
    number = 0
    while not stop.is_set():
        number += 1
        once(engine, f"{seed}-{name}-{number}")
        time.sleep(0.002)

threads = [threading.Thread(target=load, args=(n,)) for n in range(3)]
for each in threads:
    each.start()
for number in range(count):
    def work():
        for part in range(2):
            once(engine, f"{seed}-child-{number}-{part}")
        if number % 3 == 0:
            engine.close()
    pid = in_child(work, end=sys.exit if number % 5 == 0 else os._exit)
    code = reap(pid)
    if code:
        note("errors", f"child {number} ended with {code}")
stop.set()
for each in threads:
    each.join()
engine.close()
print(mainstay.__name__)
"""
OTHER = """
engine = Engine(url)
number = 0
while not os.path.exists(f"{where}/stop"):
    number += 1
    once(engine, f"other-{number}")
    time.sleep(0.005)
engine.close()
"""


def run_forks(count: int, folder: Path | None = None) -> list[str]:
    """Forks in a loop, while threads of the parent and another process write; what was violated."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="mainstay-forks-") as name:
            return run_forks(count, Path(name))
    other = start(OTHER, folder)
    try:
        run(LOAD, folder, count, 1, timeout=120.0 + 2.0 * count)
    finally:
        (folder / "stop").touch()
        complaints = other.communicate(timeout=60)[1]
    assert other.returncode == 0, complaints
    found = violations(folder)
    answered = lines(folder, "answers")
    children = {line.split()[0] for line in answered if "-child-" in line.split()[0]}
    found += [f"a child was refused: {each}" for each in lines(folder, "refused")]
    if len(children) != 2 * count:
        found.append(f"{len(children)} of {2 * count} keys of children were answered")
    print(f"{count} forks, {len(set(answered))} records, {len(found)} violations")
    return found


if __name__ == "__main__":
    seen = run_forks(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
    print(*seen, sep="\n")
    sys.exit(bool(seen))
