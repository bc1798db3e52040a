"""A name server on loopback that refuses as it is told to, and this thread's resolver that asks it.

The resolver of glibc keeps the addresses of its servers for each thread; an application may change
them. Where there is no glibc, the test is skipped.
"""

import contextlib
import ctypes
import socket
import struct
import threading

import pytest

NOERROR, FORMERR, SERVFAIL, NXDOMAIN = range(4)


class _State(ctypes.Structure):
    """The beginning of struct __res_state, which has not changed since glibc 2.2."""

    _fields_ = (
        ("retrans", ctypes.c_int),
        ("retry", ctypes.c_int),
        ("options", ctypes.c_ulong),
        ("nscount", ctypes.c_int),
        ("nsaddr", ctypes.c_char * 48),
    )


def refused(code, call):
    """What a lookup raises if the server answers every question with this code.

    Skips the test if the system asks somebody else: a file, or a service of its own.
    """
    questions = []
    with _asked(code, questions), pytest.raises(OSError) as caught:
        call()
    if not questions:
        pytest.skip("the system does not ask the servers of the resolver")
    return caught.value


@contextlib.contextmanager
def _asked(code, questions):
    """Names are looked up at a server that answers every question with this code."""
    libc = ctypes.CDLL(None)
    try:
        libc.__res_state.restype = ctypes.POINTER(_State)
        libc.__res_init()
        state = libc.__res_state().contents
    except AttributeError:
        pytest.skip("the resolver is not glibc's")
    kept = bytes(ctypes.string_at(ctypes.addressof(state), ctypes.sizeof(_State)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=_serve, args=[server, code, questions], daemon=True)
        thread.start()
        port = server.getsockname()[1]
        address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port)
        address += socket.inet_aton("127.0.0.1") + bytes(8)
        ctypes.memmove(ctypes.addressof(state) + _State.nsaddr.offset, address, 16)
        state.nscount, state.retrans, state.retry = 1, 30, 1
        try:
            yield
        finally:
            ctypes.memmove(ctypes.addressof(state), kept, ctypes.sizeof(_State))
            server.sendto(b"", ("127.0.0.1", port))
            thread.join()


def _serve(server, code, questions):
    while True:
        question, sender = server.recvfrom(4096)
        if not question:
            return
        questions.append(question)
        flags = struct.pack("!H", 0x8180 | code)
        answer = question[:2] + flags + question[4:6] + bytes(6) + question[12:]
        server.sendto(answer, sender)
