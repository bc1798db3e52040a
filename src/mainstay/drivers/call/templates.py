"""The fast path: a wrapper with the wrapped function's own signature.

A closure that takes `*args, **kwargs` packs and unpacks them on every call, and that costs more
than the call. So the wrapper is generated with the function's own parameters, as dataclasses and
attrs generate methods: a template is compiled for each shape of parameters, the names are read off
the code object and put into a copy of the compiled code, and all functions of one signature share
that copy. Defaults stay the function's own objects. What has no code object to read (a builtin, a
partial) goes through the same template with `*args, **kwargs`. What the templates make of the
commonest shapes is in shapes/, so that Python has compiled it before: `tools/wrappers.py --write`.

A first attempt that succeeds costs one Python frame and nothing else; a failure is put in a box
and handed to the driver. While it runs, the frame holds on to ms_active, by which
runtime/enclosing.py counts such frames. Generated code has the file name `<mainstay>`: a traceback
shows the line of the wrapper, and no text of a template; `tools/wrappers.py first gated kept`
prints a wrapper with its lines.

All wrappers run in one namespace, FRAMES, by which runtime/enclosing.py knows them. Names of ours
begin with ms_, so that they meet no parameter's.
"""

from __future__ import annotations

from types import CellType, CodeType, FunctionType

import mainstay.runtime.clock as clock
from mainstay.drivers.call import sync
from mainstay.drivers.call.callables import refuse_unawaitable
from mainstay.runtime.enclosing import FRAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from mainstay.core.base.types import UserValue
    from mainstay.drivers.call.callables import Function

    _Shape: TypeAlias = "tuple[int, int, int] | str"
    """How many parameters: positional, keyword only; and the flags of stars."""

_TEMPLATES = """
def first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    def first_attempt({parameters}):
        ms_started = now()                                                           #: clocked
        ms_here = ms_active
        ms_quiet = ms_now                                                            #: gated
        if ms_quiet is None:                                                         #: gated
            try:                                                                     #: gated
                return {guarded}(ms_site, ms_function, {positional}, {keyword})  #: gated
            finally:                                                                 #: gated
                del ms_here                                                          #: gated
        try:
            return {call}                                                            #: !kept
            ms_end = {call}                                                        #: kept
        except Exception as ms_error:
            ms_end = [ms_error]                                                      #: !gated
            ms_end = [ms_quiet, ms_error]                                            #: gated
        except BaseException as ms_error:                                            #: emitted
            ms_interrupted(ms_site, ms_started, ms_error)                            #: emitted
            raise                                                                    #: emitted
        else:                                                                        #: kept
            ms_seconds = now() - ms_started                                          #: slow
            if ms_now is not ms_quiet or ms_seconds >= ms_slow:                      #: slow
                ms_site.gate.passed(ms_quiet, ms_seconds)                            #: slow
            if ms_now is not ms_quiet:                                               #: gated !slow
                ms_site.gate.passed(ms_quiet, 0.0)                                   #: gated !slow
            else:                                                                    #: counted
                ms_count()                                                           #: counted
            ms_succeeded(ms_site, ms_started)                                        #: emitted
            return ms_result(True, 1, None, (now() - ms_started) * 1000.0, ms_end) #: reported
            return ms_end                                                          #: kept
        try:
            return {recover}(
                ms_site, ms_function, {positional}, {keyword}, ms_end, ms_here.moment
                , ms_started                                                         #: clocked
            )
        finally:
            del ms_here
    return first_attempt

def whole(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    def every_attempt({parameters}):
        ms_here = ms_active
        try:
            return {run}(ms_site, ms_function, {positional}, {keyword})
        finally:
            del ms_here
    return every_attempt

def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt({parameters}):
        ms_started = now()                                                           #: clocked
        ms_here = ms_active
        ms_quiet = ms_now                                                            #: gated
        if ms_quiet is None:                                                         #: gated
            try:                                                                     #: gated
                return await {guarded}(ms_site, ms_function, {positional}, {keyword})  #: gated
            except TypeError as ms_error:                                      #: gated explained
                ms_explain(ms_function, ms_error)                              #: gated explained
                raise                                                          #: gated explained
            finally:                                                                 #: gated
                del ms_here                                                          #: gated
        ms_scope = ms_begin_asyncio(ms_limit, ms_started) or ms_begin(ms_limit)      #: limited
        try:
            return await {call}                                                      #: !kept
            ms_end = await {call}                                                  #: kept
        except Exception as ms_error:                                                #: !limited
            ms_end = [ms_error]  #: !limited !gated
            ms_end = [ms_quiet, ms_error]  #: !limited gated
        except BaseException as ms_error:                                            #: limited
            ms_end = [ms_scope.failed(ms_error)]  #: limited !gated
            ms_end = [ms_quiet, ms_scope.failed(ms_error)]  #: limited gated
        except BaseException as ms_error:                                            #: emitted
            ms_interrupted(ms_site, ms_started, ms_error)                            #: emitted
            raise                                                                    #: emitted
        else:                                                                        #: kept
            ms_scope.ended()                                                         #: limited
            ms_seconds = now() - ms_started                                          #: slow
            if ms_now is not ms_quiet or ms_seconds >= ms_slow:                      #: slow
                await ms_site.gate.apassed(ms_quiet, ms_seconds)                     #: slow
            if ms_now is not ms_quiet:                                               #: gated !slow
                await ms_site.gate.apassed(ms_quiet, 0.0)                            #: gated !slow
            else:                                                                    #: counted
                ms_count()                                                           #: counted
            ms_succeeded(ms_site, ms_started)                                        #: emitted
            return ms_result(True, 1, None, (now() - ms_started) * 1000.0, ms_end) #: reported
            return ms_end                                                          #: kept
        try:
            return await {recover}(
                ms_site, ms_function, {positional}, {keyword}, ms_end, ms_here.moment
                , ms_started                                                         #: clocked
            )
        except TypeError as ms_error:                                                #: explained
            ms_explain(ms_function, ms_error)                                        #: explained
            raise                                                                    #: explained
        finally:
            del ms_here
    return first_attempt

def async_whole(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def every_attempt({parameters}):
        ms_here = ms_active
        try:
            return await {run}(ms_site, ms_function, {positional}, {keyword})
        except TypeError as ms_error:                                                #: explained
            ms_explain(ms_function, ms_error)                                        #: explained
            raise                                                                    #: explained
        finally:
            del ms_here
    return every_attempt
"""
"""A line that ends in `#: a !b` stands where a is asked for and b is not."""


class Signature:
    """The parameters of a function: their shape, and their names in the order of the code object.

    The shape is how many there are of each sort. Templates are compiled once for each shape; the
    names, and how many parameters are positional only, are put into a copy of the code, which
    takes a fiftieth of the time.
    """

    __slots__ = ("names", "positional_only", "shape")

    def __init__(
        self, shape: _Shape, names: tuple[str, ...] = (), positional_only: int = 0
    ) -> None:
        self.shape = shape
        self.names = names
        self.positional_only = positional_only

    @property
    def is_own(self) -> bool:
        """Whether the wrapper has the parameters of the function."""
        return type(self.shape) is tuple

    def texts(self) -> dict[str, str]:
        """What the shape puts into a template; parameters are called ms_0, ms_1, … there."""
        if isinstance(self.shape, str):
            packed = "(ms_function(*ms_args, **ms_kwargs) if ms_kwargs else ms_function(*ms_args))"
            texts = {"call": packed, "positional": "ms_args", "keyword": "ms_kwargs"}
            return {"parameters": self.shape, **texts}
        normal, keywords, flags = self.shape
        names = [f"ms_{number}" for number in range(normal + keywords + 2)]
        positional, named = names[:normal], names[normal : normal + keywords]
        rest = iter(names[normal + keywords :])
        star = f"*{next(rest)}" if flags & _STAR else ""
        stars = f"**{next(rest)}" if flags & _STARS else ""
        parameters = [*positional, star or ("*" if named else ""), *named, stars]
        packed_up = [*positional, star]
        pairs = [*(f"{name}={name}" for name in named), stars]
        keyword = f"dict({_listed(pairs)})" if named else stars[2:] or "ms_none"
        return {
            "parameters": _listed(parameters),
            "call": f"ms_function({_listed([*packed_up, *pairs])})",
            "positional": f"({''.join(f'{part}, ' for part in packed_up if part)})",
            "keyword": keyword,
        }


_STAR, _STARS = 0x04, 0x08  # flags of code objects, as inspect names them
_STARRED = {0: 0, _STAR: 1, _STARS: 1, _STAR | _STARS: 2}
ANY = Signature("*ms_args, **ms_kwargs")
CALL = Signature("ms_function, ms_args, ms_kwargs")


def signature_of(function: Function) -> Signature:
    """Reads the parameters off a code object; inspect would take a hundred times as long."""
    if type(function) is not FunctionType:
        return ANY
    code = function.__code__
    flags = code.co_flags & (_STAR | _STARS)
    normal, keywords = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[: normal + keywords + _STARRED[flags]]
    if "ms_" in " ".join(names) and any(name[:3] == "ms_" for name in names):
        return ANY  # it would meet one of ours
    return Signature((normal, keywords, flags), names, code.co_posonlyargcount)


def _listed(parts: list[str]) -> str:
    return ", ".join(part for part in parts if part)


# --- compiling ------------------------------------------------------------------------------------

_shapes: dict[tuple[tuple[str, ...], _Shape], CodeType] = {}
_codes: dict[tuple[tuple[str, ...], _Shape, tuple[str, ...], int], CodeType] = {}
_MAX_CODES = 1000


def function_of(
    path: tuple[str, ...], signature: Signature, held: dict[str, UserValue]
) -> FunctionType:
    """A wrapper of a template for one signature, which holds on to what the template refers to.

    A cell is taken as it is: the gate of all its wrappers sets it.
    """
    key = (path, signature.shape, signature.names, signature.positional_only)
    code = _codes.get(key)
    if code is None:
        if len(_codes) >= _MAX_CODES:
            _codes.clear()
            _shapes.clear()
        shape = _shapes.get(key[:2])
        if shape is None:
            shape = _shapes[key[:2]] = _code_of(path, signature)
        code = _codes[key] = _renamed(shape, signature)
    given = [held[name] for name in code.co_freevars]
    cells = tuple([each if type(each) is CellType else CellType(each) for each in given])
    return FunctionType(code, FRAMES, code.co_name, None, cells)


def _renamed(code: CodeType, signature: Signature) -> CodeType:
    """The code with parameters of these names."""
    names = signature.names
    if not names:
        return code
    variables = (*names, *code.co_varnames[len(names) :])
    only = signature.positional_only
    if code.co_kwonlyargcount == 0:  # no name of a parameter is a constant
        return code.replace(co_varnames=variables, co_posonlyargcount=only)
    means: dict[object, str] = {f"ms_{number}": name for number, name in enumerate(names)}
    consts = tuple([_renamed_const(each, means) for each in code.co_consts])
    return code.replace(co_varnames=variables, co_posonlyargcount=only, co_consts=consts)


def _renamed_const(const: object, means: dict[object, str]) -> object:
    """A constant of the code, which may be the name of a keyword, or several."""
    if type(const) is tuple:
        return tuple([means.get(each, each) for each in const])
    return means.get(const, const) if type(const) is str else const


def _code_of(path: tuple[str, ...], signature: Signature) -> CodeType:
    """The code of the wrapper of a path for the shape of a signature."""
    _load(path)
    maker = _shipped(path).get(signature.shape)
    if maker is not None:
        code = _inner(maker.__code__)
        return code.replace(co_filename=_FILE, co_firstlineno=_FIRST_LINE)
    return _inner(_inner(compile(source_of(path, signature), _FILE, "exec")))


_FILE, _FIRST_LINE = "<mainstay>", 2


def _shipped(path: tuple[str, ...]) -> Mapping[_Shape, FunctionType]:
    """The makers of wrappers that are there as Python's source."""
    if path == ("first",):
        from mainstay.drivers.call.shapes.first import SHAPES
    elif path == ("async_first",):
        from mainstay.drivers.call.shapes.async_first import SHAPES
    else:
        return {}
    return SHAPES


def _inner(code: CodeType) -> CodeType:
    """The function that is defined in the code."""
    return next(each for each in code.co_consts if type(each) is CodeType)


def source_of(path: tuple[str, ...], signature: Signature) -> str:
    """The text of the maker of a wrapper; its parameters are called ms_0, ms_1 and so on."""
    text = _sources.get(path)
    if text is None:
        text = _sources[path] = _source(path)
    return text.format(**signature.texts())


_sources: dict[tuple[str, ...], str] = {}
"""The templates with the lines of each path: there are a few dozen paths."""


def _source(path: tuple[str, ...]) -> str:
    """The template of a path; what a shape puts in stands there in braces."""
    name, *asked = path
    start = _TEMPLATES.index(f"\ndef {name}(") + 1
    text = _lines(_TEMPLATES[start:].partition("\n\n")[0], asked)
    goes_on = _REPORTING if "reported" in asked else _GOING_ON
    colour = "ms_a" if name.startswith("async_") else "ms_"
    for verb, function in goes_on.items():
        text = text.replace(f"{{{verb}}}", colour + function)
    return text


_GOING_ON = {"recover": "recover", "run": "run", "guarded": "guarded"}
_REPORTING = dict.fromkeys(_GOING_ON, "report")
"""What goes on with a call that is more than a first attempt, by its name in a template."""


def _lines(text: str, asked: list[str]) -> str:
    """The template with the lines that are asked for."""
    kept = []
    for line in text.splitlines():
        code, _, tags = line.partition("#:")
        if all((tag.lstrip("!") in asked) is not tag.startswith("!") for tag in tags.split()):
            kept.append(f"{code.rstrip()}\n")
    return "".join(kept)


FRAMES.update(
    ms_recover=sync.recover, ms_run=sync.run, ms_guarded=sync.run_guarded, ms_report=sync.report,
    ms_none={},
)  # fmt: skip
clock.follow(FRAMES)


def _load(path: tuple[str, ...]) -> None:
    """Loads what a template calls when one of its sort is first compiled."""
    if path[0].startswith("async_") and "ms_arecover" not in FRAMES:
        from mainstay.drivers.call import aio

        FRAMES.update(
            ms_arecover=aio.recover, ms_arun=aio.run, ms_aguarded=aio.run_guarded,
            ms_areport=aio.report,
        )  # fmt: skip
    if "limited" in path and "ms_begin" not in FRAMES and path[0].startswith("async_"):
        from mainstay.drivers.call import aio, on_asyncio

        FRAMES.update(ms_begin_asyncio=on_asyncio.begin, ms_begin=aio.begin)
    if "explained" in path:
        FRAMES["ms_explain"] = refuse_unawaitable
    if "reported" in path and "ms_result" not in FRAMES:
        from mainstay.drivers.call.result import RetryResult

        FRAMES["ms_result"] = RetryResult
    if "emitted" in path and "ms_succeeded" not in FRAMES:
        from mainstay.drivers.call.emit import interrupted, succeeded

        FRAMES.update(ms_succeeded=succeeded, ms_interrupted=interrupted)
