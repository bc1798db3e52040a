"""Keeps prices in a cache: REDIS_URL=redis://... prices_redis.py tea milk."""

import os
import sys

import redis

import mainstay
from mainstay.integrations.redis import Retry

TIMEOUT = float(os.environ.get("REDIS_TIMEOUT", "1"))
cache = redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=TIMEOUT)
cache.set_retry(Retry(mainstay.RetryPolicy(attempts=3, deadline=5.0)))


def price(product):
    known = cache.get(f"price:{product}")
    if known is None:
        known = len(product)  # a price takes long to compute
        cache.set(f"price:{product}", known, ex=60)
    return int(known)


for product in sys.argv[1:]:
    print(product, price(product))
