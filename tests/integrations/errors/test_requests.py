"""requests against a server that fails."""

import requests

from tests.integrations.errors.http_contract import PATIENT, HttpContract


class TestRequests(HttpContract):
    library, base, status_error = (
        "requests",
        requests.RequestException,
        requests.HTTPError,
    )

    @staticmethod
    def send(method, url, headers, timeout=PATIENT):
        with requests.Session() as session:
            session.trust_env = False
            answer = session.request(method, url, headers=headers, timeout=timeout)
            answer.raise_for_status()
            return answer
