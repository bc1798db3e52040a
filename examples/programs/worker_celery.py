"""A worker that sends invoices: BROKER_URL=redis://... celery -A worker_celery worker."""

import os

import requests
from celery import Celery

import mainstay

app = Celery("invoices", broker=os.environ["BROKER_URL"], backend=os.environ["BROKER_URL"])
MAIL = os.environ["MAIL_URL"]
TIMEOUT = float(os.environ.get("MAIL_TIMEOUT", "5"))


@app.task
@mainstay.retry(on=mainstay.transient, attempts=3, deadline=30.0)
def send_invoice(number):
    answer = requests.post(f"{MAIL}/invoices/{number}", json={"to": "a@shop"}, timeout=TIMEOUT)
    answer.raise_for_status()
    return f"invoice {number} was sent"
