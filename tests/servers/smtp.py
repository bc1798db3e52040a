"""A mail server on loopback, for tests; `start()` and `stop()` are those of aiosmtpd."""

from aiosmtpd.controller import Controller


class MailServer(Controller):
    """A server on a port that the system chooses, which no other process can take meanwhile.

    aiosmtpd checks itself by a connection of one second, and waits for five in all: a machine that
    runs three suites at once needs longer, so it has a minute.
    """

    def __init__(self, handler, ssl_context=None):
        super().__init__(
            handler, hostname="127.0.0.1", port=0, ssl_context=ssl_context, ready_timeout=60.0
        )

    def _trigger_server(self):
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()
