"""A service that asks another one over httpx: STOCK_URL=http://... uvicorn orders_fastapi:app."""

import logging
import os

import httpx
from fastapi import FastAPI, HTTPException

import mainstay
from mainstay.integrations.httpx import AsyncTransport

log = logging.getLogger("uvicorn.error")
app = FastAPI()
stock = httpx.AsyncClient(
    base_url=os.environ["STOCK_URL"],
    timeout=float(os.environ.get("STOCK_TIMEOUT", "5")),
    transport=AsyncTransport(mainstay.RetryPolicy(attempts=3, deadline=30.0)),
)


@app.get("/orders/{product}")
async def order(product: str):
    try:
        answer = await stock.get(f"/stock/{product}")
        answer.raise_for_status()
    except httpx.HTTPStatusError as error:
        if error.response.status_code == 404:
            raise HTTPException(404, f"there is no {product}") from error
        log.exception("the stock service failed")
        raise HTTPException(502, "the stock service failed") from error
    except httpx.HTTPError as error:
        log.exception("the stock service cannot be reached")
        raise HTTPException(502, "the stock service cannot be reached") from error
    return {"product": product, "available": answer.json()["count"] > 0}
