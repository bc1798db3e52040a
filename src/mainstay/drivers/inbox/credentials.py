"""What operators prove who they are with: a secret, a private key, a signature made elsewhere.

A secret is handed on and kept nowhere. Keys need `cryptography`, of the extra `signing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mainstay.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    import os
    from typing import Protocol

    class PrivateKey(Protocol):
        """A key of the optional library."""

        def sign(self, message: bytes, /) -> bytes: ...


HINT = "mainstay audit keygen PATH makes one"


class Secret:
    """A secret that is not shown: not in a repr, not in a traceback.

    >>> Secret("hunter2")
    Secret(...)
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise UsageError("a secret must be a text that is not empty")
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"


class Signature(Struct, frozen=True):
    """A signature of `mainstay.core.inbox.operators.statement`, made where the key is.

    >>> Signature(b"...", at=5.0).at
    5.0
    """

    data: bytes
    at: float


class OperatorKey:
    """An Ed25519 private key, given as PEM or as the path of its file.

    >>> from mainstay.audit import make_key
    >>> import tempfile
    >>> private, public = make_key(tempfile.mkdtemp() + "/ann.pem")
    >>> OperatorKey(private)
    OperatorKey(...)
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes | str | os.PathLike[str]) -> None:
        ed25519, pem = library()
        try:
            found = pem.load_pem_private_key(pem_of(key), password=None)
        except (ValueError, TypeError):  # its text might show some of the key
            raise UsageError("the key cannot be read as a private key", hint=HINT) from None
        if not isinstance(found, ed25519.Ed25519PrivateKey):
            raise UsageError("the key is no Ed25519 key", hint=HINT)
        self._key: PrivateKey = found

    def sign(self, message: bytes, at: float) -> Signature:
        """The signature of a statement."""
        return Signature(self._key.sign(message), at)

    def __repr__(self) -> str:
        return "OperatorKey(...)"


def public_pem(key: bytes | str | os.PathLike[str]) -> str:
    """A public key as PEM, if it is one."""
    ed25519, pem = library()
    text = pem_of(key)
    try:
        found = pem.load_pem_public_key(text)
    except ValueError:
        raise UsageError("the public key cannot be read", hint=HINT) from None
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise UsageError("the public key is no Ed25519 key", hint=HINT)
    made = found.public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
    return str(made.decode())


def is_signed(public_key: str, message: bytes, signature: Signature) -> bool:
    """Whether the owner of the key signed the message."""
    _, pem = library()
    from cryptography.exceptions import InvalidSignature

    try:
        pem.load_pem_public_key(public_key.encode()).verify(signature.data, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def unowned_key() -> str:
    """A public key of no operator: a check takes as long for an unknown name."""
    ed25519, pem = library()
    public = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
    made = public.public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
    return str(made.decode())


def pem_of(key: bytes | str | os.PathLike[str]) -> bytes:
    """PEM as it is, or from a file."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str) and "-----BEGIN" in key:
        return key.encode()
    try:
        from pathlib import Path  # when it is needed: it takes a moment to load

        return Path(key).read_bytes()
    except OSError as error:
        raise UsageError(f"key: {error}", hint=HINT) from None


def library() -> tuple[Any, Any]:
    """What signs and verifies, and what reads and writes keys; an extra."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtraError("cryptography", "signing") from None
    return ed25519, serialization
