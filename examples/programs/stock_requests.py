"""Prints how many of each product are in stock: SHOP_URL=http://... stock_requests.py tea milk."""

import os
import sys

import requests

import mainstay

SHOP = os.environ["SHOP_URL"]
TIMEOUT = float(os.environ.get("SHOP_TIMEOUT", "5"))


@mainstay.retry(on=mainstay.transient, attempts=3, deadline=30.0)
def stock(product):
    answer = requests.get(f"{SHOP}/stock/{product}", timeout=TIMEOUT)
    answer.raise_for_status()
    return answer.json()["count"]


for product in sys.argv[1:]:
    print(product, stock(product))
