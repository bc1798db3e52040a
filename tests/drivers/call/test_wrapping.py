"""A decorated function is the function: signature, identity, tracebacks, and what it costs."""

import asyncio
import functools
import gc
import inspect
import subprocess
import sys
import textwrap
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mainstay
from mainstay import Backoff, Engine, Jitter, RetryPolicy, WrapError
from mainstay.drivers.call import templates
from mainstay.testing import virtual_time
from tests.costs import acosts, costs

POLICY = RetryPolicy(name="op", retry_on=OSError, backoff=Backoff.constant(0), jitter=Jitter.none())
LIMITED = POLICY.replace(deadline=60.0)
TIMED = POLICY.replace(attempt_timeout=60.0)
PICKY = POLICY.replace(retry_if_result=lambda value: False)
POLICIES = [POLICY, LIMITED, TIMED, PICKY]


# --- signatures -----------------------------------------------------------------------------------

NAMES = [
    "a", "b", "c", "self", "cls", "args", "kwargs", "now", "dict", "Exception", "BaseException",
    "ms_site", "ms_function", "ms_error", "ms_box", "ms_args", "ms_kwargs", "ms_started",
    "function", "site", "first_attempt", "match", "type", "_", "__x", "été", "len", "await_",
]  # fmt: skip


@st.composite
def signatures(draw):
    """A parameter list as source text, and arguments that fit it."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=8))
    cuts = sorted(draw(st.tuples(*[st.integers(0, len(names))] * 2)))
    only, normal, keyword = names[: cuts[0]], names[cuts[0] : cuts[1]], names[cuts[1] :]
    star = stars = None
    if keyword and draw(st.booleans()):
        star = keyword.pop(0)
    if keyword and draw(st.booleans()):
        stars = keyword.pop()
    positional = len(only) + len(normal)
    defaults = draw(st.integers(0, positional))
    parts, args, kwargs = [], [], {}
    for n, name in enumerate([*only, *normal]):
        optional = n >= positional - defaults
        parts.append(f"{name}=DEFAULTS[{n}]" if optional else name)
        if (not optional or (len(args) == n and draw(st.booleans()))) and len(args) == n:
            args.append(f"value of {name}")
        if n + 1 == len(only):
            parts.append("/")
    if star:
        parts.append(f"*{star}")
        if len(args) == positional:
            args += draw(st.lists(st.just("extra"), max_size=2))
    elif keyword:
        parts.append("*")
    for n, name in enumerate(keyword):
        optional = draw(st.booleans())
        parts.append(f"{name}=DEFAULTS[{10 + n}]" if optional else name)
        if not optional or draw(st.booleans()):
            kwargs[name] = f"value of {name}"
    if stars:
        parts.append(f"**{stars}")
        kwargs |= draw(st.dictionaries(st.sampled_from(["x1", "x2", "now", *only]), st.just(1)))
        taken = set(normal[: max(0, len(args) - len(only))])
        kwargs = {key: value for key, value in kwargs.items() if key not in taken}
    return ", ".join(parts), args, kwargs


class Default:
    """A default whose identity matters."""


DEFAULTS = [Default() for _ in range(20)]


def made(parameters, is_async, fails):
    """A function with those parameters that returns its locals; fails the first times."""
    word = "async def" if is_async else "def"
    source = f"{word} function({parameters}):\n    FOUND = locals().copy()\n    return hit(FOUND)\n"
    left = [fails]

    def hit(found):
        if left[0]:
            left[0] -= 1
            raise ConnectionError
        return found

    namespace = {"DEFAULTS": DEFAULTS, "hit": hit}
    exec(source, namespace)
    return namespace["function"]


@pytest.mark.req("FR-041-21", "AC-009")
@settings(max_examples=300, deadline=None)
@given(
    signature=signatures(),
    is_async=st.booleans(),
    fails=st.integers(0, 2),
    chosen=st.sampled_from(POLICIES),
)
def test_any_signature_is_kept_and_its_arguments_arrive(signature, is_async, fails, chosen):
    """Positional-only, keyword-only, stars, defaults, names of ours: the call is the same call."""
    parameters, args, kwargs = signature
    bare, inner = made(parameters, is_async, 0), made(parameters, is_async, fails)
    decorated = chosen(inner)
    assert inspect.signature(decorated) == inspect.signature(inner)
    expected, found = bare(*args, **kwargs), decorated(*args, **kwargs)
    if is_async:
        expected, found = asyncio.run(gathered(expected, found))
    assert found == expected
    assert all(found[name] is value for name, value in expected.items() if type(value) is Default)


async def gathered(*awaitables):
    return [await each for each in awaitables]


@settings(max_examples=100, deadline=None)
@given(signature=signatures(), chosen=st.sampled_from(POLICIES))
def test_arguments_that_do_not_fit_are_refused_as_by_the_function(signature, chosen):
    """A call that the function would refuse is refused with a TypeError, and made once."""
    parameters, args, kwargs = signature
    bare, decorated = made(parameters, False, 0), chosen(made(parameters, False, 0))
    for wrong in ((*args, *["too many"] * 9), ()):
        outcomes = []
        for function in (bare, decorated):
            try:
                outcomes.append(type(function(*wrong, **kwargs)))
            except TypeError:
                outcomes.append(TypeError)
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", ["now", "dict", "Exception", "BaseException", "ms_site", "ms_box"])
@pytest.mark.parametrize("shape", ["{0}", "{0}, *, b=1", "*, {0}", "*{0}, b=1", "*, b=1, **{0}"])
@pytest.mark.parametrize("is_async", [False, True])
def test_names_of_ours_are_free_for_parameters(name, shape, is_async):
    """A parameter may be called as something in our template, in any place, and fail twice."""
    parameters = shape.format(name)
    args, kwargs = ((7,), {}) if shape.startswith(("{0}", "*{0}")) else ((), {name: 7})
    for chosen in POLICIES:
        expected = made(parameters, is_async, 0)(*args, **kwargs)
        found = chosen(made(parameters, is_async, 2))(*args, **kwargs)
        if is_async:
            expected, found = asyncio.run(gathered(expected, found))
        assert found == expected


def test_a_mutable_default_is_the_functions_own_object():
    """Each call sees the same list, as it would without the decorator."""

    @POLICY
    def remember(value, seen=[]):  # noqa: B006
        seen.append(value)
        return seen

    assert remember(1) is remember(2)
    assert remember.__defaults__ is remember.__wrapped__.__defaults__
    assert remember(3) == [1, 2, 3]


def test_keyword_arguments_are_fresh_in_every_attempt():
    """What an attempt does to its **kwargs, the next one does not see."""
    seen = []

    @POLICY
    def greedy(**options):
        seen.append(dict(options))
        options.clear()
        raise ConnectionError

    with virtual_time(), pytest.raises(ConnectionError):
        greedy(a=1, b=2)
    assert seen == [{"a": 1, "b": 2}] * 3


@pytest.mark.parametrize("chosen", POLICIES)
def test_everything_that_describes_a_function_is_kept(chosen):
    """Name, module, documentation, annotations, attributes; the function as __wrapped__."""

    def fetch(url: str, *, retries: "int" = 3) -> bytes:
        """Fetches."""
        return b""

    fetch.tag = "a tag"
    decorated = chosen(fetch)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        assert getattr(decorated, name) == getattr(fetch, name)
    assert decorated.__kwdefaults__ == {"retries": 3}
    assert decorated.tag == "a tag"
    assert decorated.__wrapped__ is fetch
    assert inspect.unwrap(decorated) is fetch
    assert inspect.iscoroutinefunction(decorated) is False

    async def afetch():
        return 1

    assert inspect.iscoroutinefunction(chosen(afetch))


# --- what can be decorated ------------------------------------------------------------------------


class Service:
    """Methods of every sort."""

    base = 10

    def __init__(self):
        self.calls = 0

    def fail_once(self):
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError

    @POLICY
    def method(self, n):
        self.fail_once()
        return self.base + n

    @POLICY
    async def amethod(self, n):
        self.fail_once()
        return self.base + n

    @POLICY
    @classmethod
    def outside_class(cls, n):
        return cls.base + n

    @classmethod
    @POLICY
    def inside_class(cls, n):
        return cls.base + n

    @POLICY
    @staticmethod
    def outside_static(n):
        return 10 + n

    @staticmethod
    @POLICY
    def inside_static(n):
        return 10 + n

    @property
    @POLICY
    def ten(self):
        self.fail_once()
        return self.base

    @functools.cached_property
    @POLICY
    def cached(self):
        self.fail_once()
        return self.base


class Special(Service):
    """A subclass calls what it overrides."""

    base = 20

    @POLICY
    def method(self, n):
        return super().method(n)


@pytest.mark.req("FR-041-21")
def test_methods_of_every_sort_are_decorated_rightly():
    """Methods, class methods and static methods, the decorator above or below theirs."""
    assert Service().method(1) == 11
    assert asyncio.run(Service().amethod(1)) == 11
    assert Service().ten == 10
    assert Service().cached == 10
    for name in ("outside_class", "inside_class"):
        assert getattr(Service, name)(1) == getattr(Service(), name)(1) == 11
        assert getattr(Special, name)(1) == 21
    for name in ("outside_static", "inside_static"):
        assert getattr(Service, name)(1) == getattr(Service(), name)(1) == 11
    assert Special().method(1) == 21
    assert Service.method.__qualname__ == "Service.method"


@pytest.mark.parametrize("chosen", POLICIES)
def test_whatever_can_be_called_can_be_decorated(chosen):
    """Partials, builtins, lambdas, bound methods, callable objects, nested functions."""

    class Adder:
        def __call__(self, a, b=1):
            return a + b

    class AsyncAdder:
        async def __call__(self, a, b=1):
            return a + b

    async def add(a, b=1):
        return a + b

    assert chosen(functools.partial(int, base=2))("101") == 5
    assert chosen(int.__add__)(1, 2) == 3
    assert chosen(len)([1, 2]) == 2
    assert chosen(lambda a, /, *b, c=3: (a, b, c))(1, 2, c=4) == (1, (2,), 4)
    assert chosen("a-b".split)("-") == ["a", "b"]
    assert chosen(Adder())(1) == 2
    assert chosen(Adder().__call__)(1, b=2) == 3
    assert chosen(functools.lru_cache(lambda a: a))(1) == 1
    for coloured in (AsyncAdder(), functools.partial(add, 1), functools.partial(AsyncAdder(), 1)):
        assert inspect.iscoroutinefunction(chosen(coloured))
        args = (1,) if isinstance(coloured, AsyncAdder) else ()
        assert asyncio.run(chosen(coloured)(*args)) == 2


def test_functions_of_one_signature_share_their_code():
    """The compiled wrapper is made once for a signature, and only the cells differ."""

    def one(a, *, b=1):
        return a + b

    def two(a, *, b=2):
        return a * b

    first, second = POLICY(one), POLICY(two)
    assert first.__code__ is second.__code__
    assert (first(1), second(2)) == (2, 4)


def test_the_cache_of_signatures_is_bounded():
    """A program that makes functions for ever does not grow for ever."""
    for n in range(templates._MAX_CODES + 50):
        namespace = {}
        exec(f"def function(a{n}): return a{n}", namespace)
        assert POLICY(namespace["function"])(n) == n
    assert len(templates._codes) <= templates._MAX_CODES


@POLICY
def module_level(a, b=2):
    """Can be pickled by its name."""
    return a + b


def test_a_decorated_function_of_a_module_can_be_pickled(tmp_path):
    """It pickles by name, as the function would, also into another process."""
    (tmp_path / "pickled.py").write_text(
        textwrap.dedent("""
            import pickle, sys
            from concurrent.futures import ProcessPoolExecutor
            from mainstay import retry

            @retry(on=OSError)
            def double(n):
                return 2 * n

            if __name__ == "__main__":
                import pickled
                assert pickle.loads(pickle.dumps(pickled.double)) is pickled.double
                with ProcessPoolExecutor(1) as pool:
                    print(pool.submit(pickled.double, 21).result())
        """)
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "pickled.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "42\n"


# --- what is refused ------------------------------------------------------------------------------


def numbers():
    yield 1


async def async_numbers():
    yield 1


@pytest.mark.parametrize(
    ("thing", "word"),
    [
        (numbers, "generator"),
        (async_numbers, "async generator"),
        (functools.partial(numbers), "generator"),
        (property(lambda self: 1), "below @property"),
        (int, "class"),
        (42, "cannot be called"),
        (None, "cannot be called"),
        ("fetch", "cannot be called"),
    ],
    ids=lambda each: getattr(each, "__name__", str(each))[:20],
)
def test_what_cannot_be_retried_is_refused_with_the_way_out(thing, word):
    """Refused when it is decorated, with a hint, and with the same error by every decorator."""
    engine = Engine(sinks=[])
    for decorate in (POLICY, mainstay.retry(on=OSError), engine.protect("op")):
        with pytest.raises(WrapError) as caught:
            decorate(thing)
        assert word in str(caught.value)
        assert caught.value.hint


async def answer():
    return 42


@pytest.mark.parametrize("verbs", ["policy", "limited", "picky", "operation", "listened"])
@pytest.mark.parametrize("verb", ["call", "acall", "run", "arun", "decorate"])
def test_a_coroutine_object_is_refused_everywhere(verb, verbs, request):
    """A coroutine can be awaited once: refused, closed, and no "never awaited" from Python."""
    target = {
        "policy": POLICY,
        "limited": LIMITED,
        "picky": PICKY,
        "operation": Engine(sinks=[]).operation("op"),
        "listened": Engine(sinks=[lambda event: None]).operation("op"),
    }[verbs]
    if verb == "decorate":
        engine = Engine(sinks=[])
        function = target if isinstance(target, RetryPolicy) else engine.protect("op")
    else:
        function = getattr(target, verb)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(WrapError) as caught:
            made = function(answer())
            if inspect.iscoroutine(made):
                asyncio.run(made)
        gc.collect()
    assert "coroutine object" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("verb", ["call", "run"])
def test_an_async_function_in_a_sync_verb_is_refused(verb):
    """`policy.call(async_function)` would run nothing: refused, and nothing is left unawaited."""
    for target in (POLICY, PICKY, Engine(sinks=[]).operation("op")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(WrapError, match="async"):
                getattr(target, verb)(answer)
            gc.collect()


@pytest.mark.parametrize("verb", ["acall", "arun"])
def test_a_plain_function_in_an_async_verb_is_refused(verb):
    """`await policy.acall(plain_function)` says which verb would have been right."""
    calls = []

    def plain():
        calls.append(1)
        return 42

    for target in (POLICY, LIMITED, PICKY, Engine(sinks=[]).operation("op")):
        calls.clear()
        with pytest.raises((WrapError, TypeError)):
            result = asyncio.run(getattr(target, verb)(plain))
            if verb == "arun":
                raise result.last_exception
        assert len(calls) <= 1


@pytest.mark.parametrize("verb", ["call", "run", "acall", "arun"])
def test_a_generator_function_is_refused_by_every_verb(verb):
    """Calling it runs nothing, so nothing would be retried."""
    function = numbers if verb in ("call", "run") else async_numbers
    for target in (POLICY, Engine(sinks=[]).operation("op")):
        with pytest.raises(WrapError, match="generator"):
            made = getattr(target, verb)(function)
            if inspect.iscoroutine(made):
                asyncio.run(made)


# --- chains ---------------------------------------------------------------------------------------


@pytest.mark.req("NFR-041-16", "FR-041-22", "AC-010")
def test_later_errors_do_not_carry_the_earlier_ones(driver):
    """Each attempt's error stands alone: no __context__, no __cause__ of ours."""
    for chosen in POLICIES:
        errors = [ConnectionError(str(n)) for n in range(3)]
        with pytest.raises(ConnectionError) as caught:
            driver.run(chosen(driver.scripted(*errors)))
        assert caught.value is errors[-1]
        assert all(each.__context__ is None and each.__cause__ is None for each in errors)
        assert all(not each.__suppress_context__ for each in errors)


def test_an_error_that_has_a_context_keeps_it(driver):
    """What the function chained stays chained."""

    def chain():
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ConnectionError("outer") from error

    with pytest.raises(ConnectionError) as caught:
        driver.run(POLICY(driver.colour(chain)))
    assert isinstance(caught.value.__cause__, KeyError)


# --- what it costs --------------------------------------------------------------------------------


def trivial(a, *, b=1):
    return a


async def atrivial(a, *, b=1):
    return a


@pytest.mark.req("NFR-041-02", "IT-041-12")
def test_a_first_success_costs_one_frame_and_no_c_call():
    """Without deadline, timeout, budget or listener: the wrapper's own frame, and nothing else."""
    assert costs(trivial, 1) == ["trivial"]
    assert costs(POLICY(trivial), 1) == ["first_attempt", "trivial"]
    assert acosts(atrivial, 1) == ["atrivial"]
    assert acosts(POLICY(atrivial), 1) == ["first_attempt", "atrivial"]


@pytest.mark.req("NFR-041-02", "IT-041-12")
@pytest.mark.parametrize("extra", ["hooks", "cancel", "engine", "per_kind"])
def test_what_only_failures_need_costs_a_success_nothing(extra):
    """Hooks, cancel events, names of operations and rules by kind are paid for when it fails."""
    import threading

    decorate = {
        "hooks": POLICY.replace(before_retry=print, after_retry=print),
        "cancel": mainstay.retry(policy=POLICY, cancel=threading.Event()),
        "engine": Engine(policies=[POLICY], sinks=[]).protect("op"),
        "per_kind": POLICY.replace(per_kind={"throttled": mainstay.KindRule(max_attempts=2)}),
    }[extra]
    assert costs(decorate(trivial), 1) == ["first_attempt", "trivial"]
    assert acosts(decorate(atrivial), 1) == ["first_attempt", "atrivial"]


@pytest.mark.req("NFR-041-02", "IT-041-12")
def test_a_deadline_costs_a_first_success_one_look_at_the_clock():
    """Sync with a deadline or timeout: the clock call more, and nothing else."""
    for chosen in (LIMITED, TIMED, POLICY.replace(deadline=60.0, attempt_timeout=1.0)):
        assert costs(chosen(trivial), 1) == ["first_attempt", "monotonic", "trivial"]


def test_the_verbs_are_made_without_a_warning():
    """A program whose warnings are errors can import us; Python 3.13 deprecated one way."""
    program = "from mainstay import Engine, RetryPolicy; RetryPolicy.acall, Engine.acall"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
