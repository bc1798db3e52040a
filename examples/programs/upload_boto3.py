"""Uploads files to a bucket: AWS_ENDPOINT_URL=http://... upload_boto3.py BUCKET FILE..."""

import sys
from pathlib import Path

import boto3

import mainstay
from mainstay.integrations.boto3 import attach

s3 = boto3.client("s3")
attach(s3, mainstay.RetryPolicy(attempts=3, deadline=60.0))


def upload(bucket, path):
    s3.upload_file(str(path), bucket, path.name)
    print("uploaded", path.name)


bucket, *names = sys.argv[1:]
for name in names:
    upload(bucket, Path(name))
