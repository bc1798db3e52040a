"""`mainstay audit keygen`: a key that signs the heads of audit logs."""

from __future__ import annotations

import click

from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_json


@click.command("keygen", epilog=example("mainstay audit keygen audit.pem"))
@click.argument("path")
@json_option
def command(path: str, as_json: bool) -> None:
    """Make an Ed25519 key for signing.

    The private key goes to PATH, for its user only; the public one beside it, as NAME.pub.pem.
    Keep the private key where users who can change the log cannot read it.
    """
    from mainstay.audit.keys import Signer, make_key

    private, public = make_key(path)
    name = Signer(private).id
    if as_json:
        paths = {"path": str(private), "private_key": str(private), "public_key": str(public)}
        write_json({**paths, "key": name})  # by its name, `private_key` is hidden
        return
    write(f"{private}: the private half of {name}, for AuditLog(key={str(private)!r})")
    write(f"{public}: the public key, for mainstay audit verify --public-key")
