"""Uploads files and reports each one to an API, with the names of the client document.

AWS_ENDPOINT_URL=http://... API_URL=http://... upload_clients.py BUCKET FILE...

S3 is called at most 5 times for a file, the API 3 times. After five failures in a row the circuit
of the uploads is open for 30 s; if REDIS_URL is set, for every process that uses it.
"""

import os
import sys
from pathlib import Path

import boto3
import requests
from botocore.config import Config

from mainstay.profiles.clients import (
    CircuitBreaker,
    CircuitBreakerConfiguration,
    CircuitOpenException,
    RetryDecorator,
    RetryPresets,
    with_s3_retry,
)

s3 = boto3.client("s3", config=Config(retries={"total_max_attempts": 1}, read_timeout=10))
shared = "redis" if "REDIS_URL" in os.environ else "memory"
breaker = CircuitBreaker("s3.put", CircuitBreakerConfiguration(state_persistence=shared))
api = RetryDecorator(RetryPresets.API_CALL)


@with_s3_retry(circuit_breaker=breaker)
def upload(bucket, path):
    s3.put_object(Bucket=bucket, Key=path.name, Body=path.read_bytes())


def report(name):
    answer = requests.post(
        f"{os.environ['API_URL']}/uploads/{name}", headers={"Idempotency-Key": name}, timeout=10
    )
    answer.raise_for_status()


def main(bucket, *names):
    for name in names:
        path = Path(name)
        try:
            upload(bucket, path)
        except CircuitOpenException as error:
            sys.exit(f"{error}; try again in {error.retry_after:.0f} s")
        result = api.run(report, path.name)
        state = "reported" if result.success else f"not reported: {result.last_exception}"
        print(f"uploaded {path.name}, {state} (attempts: {result.attempts})")


main(*sys.argv[1:])
