"""A broker of AMQP 0-9-1 on loopback that greets, opens a connection, and then closes it.

`close` is the code and text with which the opening of a channel is answered (of the connection, or
of the channel if `of_channel`); `greeting` is sent in place of the first frame, and the frame
`first` as soon as the connection is open. If it `cancels`, it ends each consumer at once.
"""

import contextlib
import socket
import threading

import pamqp.frame
from pamqp import commands

MECHANISMS = "PLAIN AMQPLAIN"
ANSWERS = {
    "Connection.StartOk": commands.Connection.Tune(10, 131072, 0),
    "Connection.TuneOk": None,
    "Connection.Open": commands.Connection.OpenOk(),
    "Connection.Close": commands.Connection.CloseOk(),
    "Connection.CloseOk": None,
    "Channel.Close": commands.Channel.CloseOk(),
    "Channel.CloseOk": None,
    "Heartbeat": None,
    "Confirm.Select": commands.Confirm.SelectOk(),
}
"""What every client is answered with, and what needs no answer."""


class AmqpStub:
    """One for a module; its settings are those of the next connection."""

    def __init__(self):
        self.close = (320, "as asked")
        self.of_channel = False
        self.greeting = None
        self.mechanisms = MECHANISMS
        self.version = 9
        self.capabilities = {"publisher_confirms": True, "basic.nack": True}
        self.first = None
        self.cancels = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def end(self):
        """No more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[wire], daemon=True).start()

    def _serve(self, wire):
        with contextlib.suppress(OSError, EOFError), wire:
            wire.recv(8)
            if self.greeting is not None:
                wire.sendall(self.greeting)
                wire.shutdown(socket.SHUT_WR)
                wire.recv(4096)
                return
            properties = {"capabilities": self.capabilities}
            self._send(
                wire,
                commands.Connection.Start(0, self.version, properties, self.mechanisms, "en_US"),
            )
            for channel, frame in self._frames(wire):
                answer = self._answer(frame)
                if answer is not None:
                    is_whole = answer.name.startswith("Connection")
                    self._send(wire, answer, 0 if is_whole else channel)
                if frame.name == "Connection.Open" and self.first is not None:
                    self._send(wire, self.first)
                if frame.name == "Basic.Consume" and self.cancels:
                    self._send(wire, commands.Basic.Cancel(frame.consumer_tag, True), channel)

    def _answer(self, frame):
        """What a frame of the client is answered with; None if with nothing."""
        if isinstance(frame, commands.Basic.Consume):
            return commands.Basic.ConsumeOk(frame.consumer_tag)
        if isinstance(frame, commands.Channel.Open) and self.of_channel:
            return commands.Channel.OpenOk()
        if frame.name in ANSWERS:
            return ANSWERS[frame.name]
        kind = commands.Channel if self.of_channel else commands.Connection
        return kind.Close(*self.close, 0, 0)

    def _frames(self, wire):
        data = b""
        while more := wire.recv(4096):
            data += more
            while data:
                try:
                    used, channel, frame = pamqp.frame.unmarshal(data)
                except pamqp.exceptions.UnmarshalingException:
                    break
                data = data[used:]
                yield channel, frame

    @staticmethod
    def _send(wire, frame, channel=0):
        wire.sendall(pamqp.frame.marshal(frame, channel))
