"""urllib3 against a server that fails."""

import urllib3

from tests.integrations.errors.http_contract import PATIENT, HttpContract

NO_RETRIES = urllib3.Retry(
    0, status_forcelist=range(400, 600), allowed_methods=None, respect_retry_after_header=False
)
"""Statuses raise, and nothing is repeated."""


class TestUrllib3(HttpContract):
    library, base, status_error = (
        "urllib3",
        urllib3.exceptions.HTTPError,
        urllib3.exceptions.MaxRetryError,
    )
    shows_request = False

    @staticmethod
    def send(method, url, headers, timeout=PATIENT):
        with urllib3.PoolManager(timeout=timeout, retries=NO_RETRIES) as pool:
            return pool.request(method, url, headers=headers)

    def is_shown(self, error):
        """Never: its errors have the address alone."""
        return False
