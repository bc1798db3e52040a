"""The fast path: a wrapper with the wrapped function's own signature.

A closure that takes `*args, **kwargs` packs and unpacks them on every call, and that costs more
than the call. So the wrapper is generated with the function's own parameters, as dataclasses and
attrs generate methods: the parameters are read off the code object and put into a template, and
the compiled code is shared by all functions of one signature. Defaults stay the function's own
objects. What has no code object to read (a builtin, a partial) goes through the same template
with `*args, **kwargs`.

A first attempt that succeeds costs one Python frame and nothing else; a failure is put in a box
and handed to the driver. While it runs, the frame holds on to ms_active, by which
runtime/enclosing.py counts such frames. Generated code is compiled under the name `<mainstay>`, at
the line of its template: a traceback shows the number, and no text of a template.

All wrappers run in one namespace, FRAMES, by which runtime/enclosing.py knows them. Names of ours
begin with ms_, so that they meet no parameter's.
"""

from __future__ import annotations

import sys
from keyword import iskeyword
from types import FunctionType

import mainstay.runtime.clock as clock
from mainstay.core.base.attributes import attribute
from mainstay.core.base.functions import is_async
from mainstay.core.retry.policy import Policy
from mainstay.drivers.call import sync
from mainstay.drivers.call.callables import (
    SYNC_HINT,
    check_decoratable,
    first_checked,
    name_of,
    refuse_async_predicates,
)
from mainstay.errors import PolicyError, Problem, WrapError
from mainstay.runtime.enclosing import FRAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Unpack

    from mainstay.core.base.types import UserValue
    from mainstay.core.retry.policy_fields import PolicyFields
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.call.result import RetryStatistics
    from mainstay.drivers.call.site import Site
    from mainstay.ports import Sink

    Layer = Callable[[UserValue], UserValue]
    Around = tuple[tuple[Layer, ...], Function, Site]

REDACT = "__mainstay_redact__"
"""Set on a function of an engine with a Redactor of its own, for the layers around it."""

_FIRST_LINE = sys._getframe().f_lineno + 1
_TEMPLATES = """
def first(ms_function, ms_site, ms_gate, ms_count, ms_slow, ms_limit):
    def first_attempt({parameters}):
        ms_started = now()                                                           #: clocked
        ms_here = ms_active
        ms_quiet = ms_gate.quiet                                                     #: gated
        if ms_quiet is None:                                                         #: gated
            try:                                                                     #: gated
                return {guarded}(ms_site, ms_function, {positional}, {keyword})  #: gated
            finally:                                                                 #: gated
                del ms_here                                                          #: gated
        try:
            return {call}                                                            #: !kept
            ms_value = {call}                                                        #: kept
        except Exception as ms_error:
            ms_box = [ms_error]                                                      #: !gated
            ms_box = [ms_quiet, ms_error]                                            #: gated
        except BaseException as ms_error:                                            #: told
            ms_interrupted(ms_site, ms_started, ms_error)                            #: told
            raise                                                                    #: told
        else:                                                                        #: kept
            ms_seconds = now() - ms_started                                          #: slow
            if ms_gate.quiet is not ms_quiet or ms_seconds >= ms_slow:               #: slow
                ms_gate.passed(ms_quiet, ms_seconds)                                 #: slow
            if ms_gate.quiet is not ms_quiet:                                        #: gated !slow
                ms_gate.passed(ms_quiet, 0.0)                                        #: gated !slow
            else:                                                                    #: counted
                ms_count()                                                           #: counted
            ms_succeeded(ms_site, ms_started)                                        #: told
            return ms_result(True, 1, None, (now() - ms_started) * 1000.0, ms_value) #: reported
            return ms_value                                                          #: kept
        try:
            return {recover}(
                ms_site, ms_function, {positional}, {keyword}, ms_box, ms_here.moment
                , ms_started                                                         #: clocked
            )
        finally:
            del ms_here
    return first_attempt

def whole(ms_function, ms_site, ms_gate, ms_count, ms_slow, ms_limit):
    def every_attempt({parameters}):
        ms_here = ms_active
        try:
            return {run}(ms_site, ms_function, {positional}, {keyword})
        finally:
            del ms_here
    return every_attempt

def async_first(ms_function, ms_site, ms_gate, ms_count, ms_slow, ms_limit):
    async def first_attempt({parameters}):
        ms_started = now()                                                           #: clocked
        ms_here = ms_active
        ms_quiet = ms_gate.quiet                                                     #: gated
        if ms_quiet is None:                                                         #: gated
            try:                                                                     #: gated
                return await {guarded}(ms_site, ms_function, {positional}, {keyword})  #: gated
            finally:                                                                 #: gated
                del ms_here                                                          #: gated
        ms_scope = ms_begin_asyncio(ms_limit, ms_started) or ms_begin(ms_limit)      #: limited
        try:
            return await {call}                                                      #: !kept
            ms_value = await {call}                                                  #: kept
        except Exception as ms_error:                                                #: !limited
            ms_box = [ms_error]  #: !limited !gated
            ms_box = [ms_quiet, ms_error]  #: !limited gated
        except BaseException as ms_error:                                            #: limited
            ms_box = [ms_scope.failed(ms_error)]  #: limited !gated
            ms_box = [ms_quiet, ms_scope.failed(ms_error)]  #: limited gated
        except BaseException as ms_error:                                            #: told
            ms_interrupted(ms_site, ms_started, ms_error)                            #: told
            raise                                                                    #: told
        else:                                                                        #: kept
            ms_scope.ended()                                                         #: limited
            ms_seconds = now() - ms_started                                          #: slow
            if ms_gate.quiet is not ms_quiet or ms_seconds >= ms_slow:               #: slow
                await ms_gate.apassed(ms_quiet, ms_seconds)                          #: slow
            if ms_gate.quiet is not ms_quiet:                                        #: gated !slow
                await ms_gate.apassed(ms_quiet, 0.0)                                 #: gated !slow
            else:                                                                    #: counted
                ms_count()                                                           #: counted
            ms_succeeded(ms_site, ms_started)                                        #: told
            return ms_result(True, 1, None, (now() - ms_started) * 1000.0, ms_value) #: reported
            return ms_value                                                          #: kept
        try:
            return await {recover}(
                ms_site, ms_function, {positional}, {keyword}, ms_box, ms_here.moment
                , ms_started                                                         #: clocked
            )
        finally:
            del ms_here
    return first_attempt

def async_whole(ms_function, ms_site, ms_gate, ms_count, ms_slow, ms_limit):
    async def every_attempt({parameters}):
        ms_here = ms_active
        try:
            return await {run}(ms_site, ms_function, {positional}, {keyword})
        finally:
            del ms_here
    return every_attempt
"""
"""A line that ends in `#: a !b` stands where a is asked for and b is not."""


def wrap(function: UserValue, site: Site) -> UserValue:
    """The function under a site's policy; methods of every sort are wrapped inside out."""
    if isinstance(function, classmethod | staticmethod):
        return type(function)(wrap(function.__func__, site))
    if isinstance(function, property):
        raise WrapError("a property is not called", hint="put the decorator below @property")
    check_decoratable(function)
    if not site.operation:
        site = site.named(name_of(function))
    signature, awaits = _signature_of(function), is_async(function)
    wrapper = _make(function, site, awaits, signature)
    if not awaits:
        _check_first_result(wrapper, function)
    made = _dress(wrapper, function, signature)
    if type(site.policy) is not Policy:  # which a circuit has that decorates by itself
        made.mainstay = Decoration(function, site)
    else:
        note_layer(made, function, lambda other: wrap(other, site))
    if site.redact is not None:
        setattr(made, REDACT, site.redact)
    return made


def note_layer(made: Function, function: Function, layer: Layer) -> None:
    """Notes what a layer of ours has put around a decorated function: with_policy does it again."""
    handle = getattr(function, "mainstay", None)
    if isinstance(handle, Decoration) and handle.is_of(function):
        made.mainstay = handle.inside(layer, function)  # type: ignore[attr-defined]


def _check_first_result(wrapper: FunctionType, function: Function) -> None:
    """Looks at the first result, without a cost for the others: what is called is in a cell."""
    cells = wrapper.__closure__ or ()
    cell = cells[wrapper.__code__.co_freevars.index("ms_function")]

    def settle(own: Function) -> None:
        cell.cell_contents = own

    cell.cell_contents = first_checked(function, settle)


class Decoration:
    """What is known of a decorated function: `fetch.mainstay`.

    >>> from mainstay import RetryPolicy
    >>> @RetryPolicy(name="api", max_attempts=4)
    ... def fetch():
    ...     return "page"
    >>> fetch.mainstay.policy.name
    'api'
    >>> once = fetch.mainstay.with_policy(max_attempts=1)
    >>> once(), once.mainstay.policy.max_attempts
    ('page', 1)
    """

    __slots__ = ("_function", "_outer", "_site")

    def __init__(self, function: Function, site: Site, outer: Around | None = None) -> None:
        self._function = function
        self._site = site
        self._outer = outer
        """The layers around it, which the function under another policy has, too; what the last
        of them was put around; and the site of the calls, which a fallback changes."""

    @property
    def policy(self) -> Policy:
        """The policy of the function."""
        return self._site.policy

    @property
    def statistics(self) -> RetryStatistics:
        """What its failing calls came to, counted from the first look on."""
        from mainstay.drivers.call.result import RetryStatistics  # few look

        site = self._site if self._outer is None else self._outer[2]
        for listener in site.listeners:
            if isinstance(listener, RetryStatistics):
                return listener
        counted = RetryStatistics()
        site.listen(counted)
        return counted

    def with_policy(
        self, policy: Policy | None = None, /, **fields: Unpack[PolicyFields]
    ) -> UserValue:
        """The same function under another policy, or this one with some fields changed.

        It has the listeners, guards and fallback of this one, and statistics of its own. What
        decorators of others have put around this one it does not have.
        """
        if policy is not None and not isinstance(policy, Policy):
            problem = Problem("policy", policy, "a RetryPolicy; its fields need their keywords")
            raise PolicyError("with_policy", [problem])
        chosen = (self._site.policy if policy is None else policy).replace(**fields)
        if self._site.idempotency == "unsafe" and chosen.max_attempts > 1:
            allowed = '1 for an unsafe operation; declare it "idempotent" or "keyed" to retry it'
            raise PolicyError(
                "with_policy", [Problem("max_attempts", chosen.max_attempts, allowed)]
            )
        made = wrap(self._function, self._site.under(chosen, self._given()))
        for layer in self._outer[0] if self._outer is not None else ():
            made = layer(made)
        return made

    def _given(self) -> tuple[Sink, ...]:
        """The listeners without the statistics."""
        from mainstay.drivers.call.result import RetryStatistics

        listeners = self._site.listeners
        return tuple(each for each in listeners if not isinstance(each, RetryStatistics))

    def inside(self, layer: Layer, function: Function) -> Decoration:
        """The same with another layer, which was put around that function."""
        before = () if self._outer is None else self._outer[0]
        own: Decoration = getattr(function, "mainstay", self)
        site = own._site if own._outer is None else own._outer[2]
        return Decoration(self._function, self._site, ((*before, layer), function, site))

    def is_of(self, function: Function) -> bool:
        """Whether that function is meant, and not another that has copied the attribute.

        `functools.wraps` copies it: what such a wrapper adds is unknown here.
        """
        below = self._function if self._outer is None else self._outer[1]
        return getattr(function, "__wrapped__", None) is below

    def __repr__(self) -> str:
        return f"<{self._site.operation} under {self._site.policy.name!r}>"


def caller(site: Site, *, awaits: bool, reports: bool) -> Function:
    """A function of (function, args, kwargs) that makes one call of anything under the site.

    If it reports, it answers with a RetryResult.
    """
    return _make(None, site, awaits, _CALL, reports=reports)  # type: ignore[no-any-return]


def _make(
    function: Function | None,
    site: Site,
    awaits: bool,
    signature: _Signature,
    *,
    reports: bool = False,
) -> UserValue:
    if not awaits:
        refuse_async_predicates(site.policy, SYNC_HINT)
    gate, maker = site.gate, _maker(path_of(site, awaits, reports), signature)
    count = gate.tally.count if gate and gate.counts_calls else None
    slow = gate.slow_after if gate else None
    return maker(function, site, gate, count, slow, site.policy.first_limit)


def path_of(site: Site, awaits: bool, reports: bool = False) -> tuple[str, ...]:
    """Which template serves, and which lines of it: only what is configured is paid for."""
    policy, gate = site.policy, site.gate
    limited = policy.first_limit is not None
    by_thread = policy.timeout_by == "thread" and limited and not awaits
    colour = "async_" if awaits else ""
    judged = policy.retry_if_result is not None or (gate is not None and gate.judges_results)
    told = site.reports_successes
    if judged or by_thread or (told and (not site.is_plain or site.pressures or site.follows)):
        return (f"{colour}whole", *(("reported",) if reports else ()))
    slow = gate is not None and gate.slow_after is not None
    asked = {
        "clocked": limited or slow or site.is_clocked or reports or told,
        "counted": gate is not None and gate.counts_calls,
        "gated": gate is not None,
        "kept": (limited and awaits) or gate is not None or reports or told,
        "limited": limited,
        "reported": reports,
        "slow": slow,
        "told": told,
    }
    return (f"{colour}first", *(name for name, wanted in asked.items() if wanted))


class _Signature:
    """The pieces of source text that a signature puts into a template."""

    __slots__ = ("call", "is_own", "keyword", "parameters", "positional")

    def __init__(
        self, parameters: str, call: str, positional: str, keyword: str, is_own: bool
    ) -> None:
        self.parameters = parameters
        self.call = call
        self.positional = positional
        self.keyword = keyword
        self.is_own = is_own


_PACKED = "(ms_function(*ms_args, **ms_kwargs) if ms_kwargs else ms_function(*ms_args))"
_ANY = _Signature("*ms_args, **ms_kwargs", _PACKED, "ms_args", "ms_kwargs", False)
_CALL = _Signature("ms_function, ms_args, ms_kwargs", _PACKED, "ms_args", "ms_kwargs", False)


def _signature_of(function: Function) -> _Signature:
    code = function.__code__ if type(function) is FunctionType else None
    if code is None or not all(map(_is_plain_name, code.co_varnames[: _parameter_count(code)])):
        return _ANY
    return _signature_of_code(code)


def _signature_of_code(code: CodeType) -> _Signature:
    """Reads the parameters off a code object; inspect would take a hundred times as long."""
    names = code.co_varnames
    only, normal, keywords = code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount
    positional, named = names[:normal], names[normal : normal + keywords]
    rest = iter(names[normal + keywords :])
    star = f"*{next(rest)}" if code.co_flags & 0x04 else ""
    stars = f"**{next(rest)}" if code.co_flags & 0x08 else ""
    slash = [*positional[:only], "/"] if only else []
    parameters = [*slash, *positional[only:], star or ("*" if named else ""), *named, stars]
    packed = [*positional, star]
    pairs = [*(f"{name}={name}" for name in named), stars]
    return _Signature(
        _listed(parameters),
        f"ms_function({_listed([*packed, *pairs])})",
        f"({''.join(f'{part}, ' for part in packed if part)})",
        stars[2:] if stars and not named else f"dict({_listed(pairs)})" if named else "ms_none",
        True,
    )


def _parameter_count(code: CodeType) -> int:
    stars = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_argcount + code.co_kwonlyargcount + stars


def _is_plain_name(name: str) -> bool:
    """Whether a parameter may stand in the template as it is."""
    return name.isidentifier() and not iskeyword(name) and name not in _TAKEN and name[:3] != "ms_"


_TAKEN = frozenset({"now", "Exception", "BaseException", "dict"})


def _listed(parts: list[str]) -> str:
    return ", ".join(part for part in parts if part)


# --- compiling ------------------------------------------------------------------------------------

_makers: dict[tuple[tuple[str, ...], str], FunctionType] = {}
_MAX_MAKERS = 1000


def _maker(path: tuple[str, ...], signature: _Signature) -> FunctionType:
    """The compiled maker of a template for one signature, from the cache if there is one."""
    if path[0].startswith("async_"):
        _load_async(path)
    if "reported" in path and "ms_result" not in FRAMES:
        from mainstay.drivers.call.result import RetryResult

        FRAMES["ms_result"] = RetryResult
    if "told" in path and "ms_succeeded" not in FRAMES:
        from mainstay.drivers.call.emit import interrupted, succeeded

        FRAMES.update(ms_succeeded=succeeded, ms_interrupted=interrupted)
    key = (path, signature.parameters)
    maker = _makers.get(key)
    if maker is None:
        if len(_makers) >= _MAX_MAKERS:
            _makers.clear()
        maker = _makers[key] = _compile(path, signature)
    return maker


def _compile(path: tuple[str, ...], signature: _Signature) -> FunctionType:
    name, *asked = path
    start = _TEMPLATES.index(f"\ndef {name}(") + 1
    text = _TEMPLATES[start:].partition("\n\n")[0]
    line = _FIRST_LINE + _TEMPLATES.count("\n", 0, start)
    goes_on = _REPORTING if "reported" in asked else _GOING_ON
    colour = "ms_a" if name.startswith("async_") else "ms_"
    source = "\n" * (line - 1) + _lines(text, asked).format(
        **{verb: colour + function for verb, function in goes_on.items()},
        parameters=signature.parameters,
        call=signature.call,
        positional=signature.positional,
        keyword=signature.keyword,
    )
    made: dict[str, FunctionType] = {}
    exec(compile(source, "<mainstay>", "exec"), FRAMES, made)  # noqa: S102 -- our own template
    return made[name]


_GOING_ON = {"recover": "recover", "run": "run", "guarded": "guarded"}
_REPORTING = dict.fromkeys(_GOING_ON, "report")
"""What goes on with a call that is more than a first attempt, by its name in a template."""


def _lines(text: str, asked: list[str]) -> str:
    """The template with the lines that are asked for; the others stay blank, to keep its lines."""
    kept = []
    for line in text.splitlines():
        code, _, tags = line.partition("#:")
        wanted = all((tag.lstrip("!") in asked) is not tag.startswith("!") for tag in tags.split())
        kept.append(code.rstrip() if wanted else "")
    return "\n".join(kept)


def _dress(wrapper: UserValue, function: UserValue, signature: _Signature) -> UserValue:
    """Makes the wrapper look like the function, as functools.update_wrapper does."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__type_params__"):
        value = getattr(function, name, None)
        if value is not None:
            setattr(wrapper, name, value)
    if signature.is_own:
        wrapper.__defaults__ = function.__defaults__
        wrapper.__kwdefaults__ = function.__kwdefaults__
    annotate = getattr(function, "__annotate__", None)
    if annotate is not None:  # since Python 3.14: evaluated by who reads the annotations, not here
        wrapper.__annotate__ = annotate
    elif annotations := attribute(function, "__annotations__"):
        wrapper.__annotations__ = annotations
    wrapper.__dict__.update(getattr(function, "__dict__", ()))
    wrapper.__wrapped__ = function
    return wrapper


FRAMES.update(
    ms_recover=sync.recover, ms_run=sync.run, ms_guarded=sync.run_guarded, ms_report=sync.report,
    ms_none={},
)  # fmt: skip
clock.follow(FRAMES)


def _load_async(path: tuple[str, ...]) -> None:
    """The async driver is loaded when the first async function is wrapped."""
    if "ms_arecover" not in FRAMES:
        from mainstay.drivers.call import aio

        FRAMES.update(
            ms_arecover=aio.recover, ms_arun=aio.run, ms_aguarded=aio.run_guarded,
            ms_areport=aio.report,
        )  # fmt: skip
    if "limited" in path and "ms_begin" not in FRAMES:
        from mainstay.drivers.call import aio, on_asyncio

        FRAMES.update(ms_begin_asyncio=on_asyncio.begin, ms_begin=aio.begin)
