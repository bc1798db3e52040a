"""Ed25519 keys: who has the private one signs heads, who has the public one checks them.

Needs `cryptography`, of the extra `signing`. A key is given as PEM, as a path to it, or as an
object of that library.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstay.core.audit.chain import message_of, signed
from mainstay.drivers.inbox.credentials import HINT, library, pem_of
from mainstay.errors import UsageError

if TYPE_CHECKING:
    from mainstay.core.audit.chain import Head


class Signer:
    """Signs heads with a private key; `id` is what its public key is known by."""

    def __init__(self, key: Any) -> None:
        self._key = _private(key)
        self.id = key_id(self._key.public_key())

    def sign(self, head: Head) -> Head:
        """The head with a signature."""
        return signed(head, self.id, self._key.sign(message_of(head)))


class Checker:
    """Checks signatures with a public key."""

    def __init__(self, key: Any) -> None:
        self._key = _public(key)
        self.id = key_id(self._key)

    def is_signed(self, head: Head) -> bool:
        """Whether this key's owner has signed it."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(bytes.fromhex(head.signature), message_of(head))
        except (InvalidSignature, ValueError):
            return False
        return True


def make_key(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Makes a key for signing: the private one at the path, the public one beside it.

    Only the user may read the private key. Nothing is overwritten.

    >>> import tempfile
    >>> private, public = make_key(tempfile.mkdtemp() + "/audit.pem")
    >>> public.name
    'audit.pub.pem'
    """
    ed25519, pem = library()
    private = Path(path)
    public = private.with_name(f"{private.stem}.pub{private.suffix or '.pem'}")
    key = ed25519.Ed25519PrivateKey.generate()
    secret = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
    open_part = key.public_key().public_bytes(
        pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo
    )
    for file, data, mode in ((private, secret, 0o600), (public, open_part, 0o644)):
        _write_new(file, data, mode)
    return private, public


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise UsageError(f"{path} is there already", hint="give another path") from None
    with os.fdopen(file, "wb") as opened:
        opened.write(data)


def key_id(public: Any) -> str:
    """A short name for a public key."""
    _, pem = library()
    raw = public.public_bytes(pem.Encoding.Raw, pem.PublicFormat.Raw)
    return hashlib.sha256(raw).hexdigest()[:16]


def _private(key: Any) -> Any:
    ed25519, pem = library()
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key
    try:
        found = pem.load_pem_private_key(pem_of(key), password=None)
    except (ValueError, TypeError) as error:
        raise UsageError(f"key: cannot be read as a private key: {error}", hint=HINT) from None
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise UsageError("key: is no Ed25519 key", hint=HINT)
    return found


def _public(key: Any) -> Any:
    ed25519, pem = library()
    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    try:
        found = pem.load_pem_public_key(pem_of(key))
    except ValueError as error:
        raise UsageError(f"public key: cannot be read: {error}", hint=HINT) from None
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise UsageError("public key: is no Ed25519 key", hint=HINT)
    return found
