"""The wrappers of the commonest shapes, as the template `async_first` makes them.

Python compiles them when mainstay is installed, and not when a function is decorated. Made by
tools/wrappers.py: edit drivers/call/templates.py, then .venv/bin/python tools/wrappers.py --write
"""

# mypy: ignore-errors

from __future__ import annotations

SHAPES: dict = {}


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt():
        ms_here = ms_active
        try:
            return await ms_function()
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(0, 0, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0):
        ms_here = ms_active
        try:
            return await ms_function(ms_0)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(1, 0, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(2, 0, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, ms_2):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, ms_2)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ms_2, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(3, 0, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, ms_2, ms_3):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, ms_2, ms_3)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ms_2, ms_3, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(4, 0, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, ms_2, ms_3, ms_4):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, ms_2, ms_3, ms_4)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ms_2, ms_3, ms_4, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(5, 0, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, ms_2, ms_3, ms_4, ms_5):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, ms_2, ms_3, ms_4, ms_5)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ms_2, ms_3, ms_4, ms_5, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(6, 0, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, ms_2, ms_3, ms_4, ms_5, ms_6):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, ms_2, ms_3, ms_4, ms_5, ms_6)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ms_2, ms_3, ms_4, ms_5, ms_6, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(7, 0, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, ms_2, ms_3, ms_4, ms_5, ms_6, ms_7, ms_8, ms_9):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, ms_2, ms_3, ms_4, ms_5, ms_6, ms_7, ms_8, ms_9)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ms_2, ms_3, ms_4, ms_5, ms_6, ms_7, ms_8, ms_9, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(10, 0, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, *, ms_1):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1=ms_1)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ), dict(ms_1=ms_1), ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(1, 1, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, *, ms_2):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, ms_2=ms_2)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ), dict(ms_2=ms_2), ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(2, 1, 0)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, *ms_1):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, *ms_1)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, *ms_1, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(1, 0, 4)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, *ms_2):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, *ms_2)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, *ms_2, ), ms_none, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(2, 0, 4)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, **ms_1):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, **ms_1)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ), ms_1, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(1, 0, 8)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, **ms_2):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, **ms_2)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ), ms_2, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(2, 0, 8)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, ms_2, **ms_3):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, ms_2, **ms_3)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ms_2, ), ms_3, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(3, 0, 8)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, ms_2, ms_3, **ms_4):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, ms_2, ms_3, **ms_4)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, ms_2, ms_3, ), ms_4, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(4, 0, 8)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(*ms_0, **ms_1):
        ms_here = ms_active
        try:
            return await ms_function(*ms_0, **ms_1)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (*ms_0, ), ms_1, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(0, 0, 12)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, *ms_1, **ms_2):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, *ms_1, **ms_2)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, *ms_1, ), ms_2, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(1, 0, 12)] = async_first


def async_first(ms_function, ms_site, ms_now, ms_count, ms_slow, ms_limit):
    async def first_attempt(ms_0, ms_1, *ms_2, **ms_3):
        ms_here = ms_active
        try:
            return await ms_function(ms_0, ms_1, *ms_2, **ms_3)
        except Exception as ms_error:
            ms_end = [ms_error]
        try:
            return await ms_arecover(
                ms_site, ms_function, (ms_0, ms_1, *ms_2, ), ms_3, ms_end, ms_here.moment
            )
        finally:
            del ms_here
    return first_attempt

SHAPES[(2, 0, 12)] = async_first
