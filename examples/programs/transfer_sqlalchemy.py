"""Moves money between accounts: DATABASE_URL=... transfer_sqlalchemy.py tea milk 5."""

import os
import sys

from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

import mainstay

Session = sessionmaker(create_engine(os.environ["DATABASE_URL"]))
MOVE = text("UPDATE accounts SET balance = balance + :amount WHERE name = :name")


@mainstay.retry(on=mainstay.transient, attempts=3, deadline=30.0)
def transfer(source, target, amount):
    with Session.begin() as session:
        session.execute(MOVE, {"name": source, "amount": -amount})
        session.execute(MOVE, {"name": target, "amount": amount})


source, target, amount = sys.argv[1:]
transfer(source, target, int(amount))
print("moved", amount, "from", source, "to", target)
