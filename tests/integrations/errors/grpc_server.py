"""A local gRPC server: the last part of a method's name is what it does with a call."""

import threading
from collections import Counter
from concurrent import futures

import grpc


class Handlers(grpc.GenericRpcHandler):
    """`/t.T/UNAVAILABLE` aborts with that code; the scripts of `GrpcServer` come first."""

    def __init__(self, server):
        self.server = server

    def service(self, details):
        method = details.method.rpartition("/")[2]
        if method == "stream":
            return grpc.unary_stream_rpc_method_handler(self.stream)

        def unary(request, context):
            return self.server.answer(method, request, context)

        return grpc.unary_unary_rpc_method_handler(unary)

    def stream(self, request, context):
        """Some of an answer, and then a failure."""
        self.server.seen["stream"] += 1
        self.server.left.append(context.time_remaining())
        yield b"some"
        context.abort(grpc.StatusCode.UNAVAILABLE, "broken off")


class GrpcServer:
    """`target`, what came, and `script`: what the next calls of a method do."""

    def __init__(self):
        self.seen = Counter()
        self.metadata = []
        self.left = []
        self.script = []
        self.trailing = ()
        self.gate = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(8), handlers=(Handlers(self),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.target = f"127.0.0.1:{self.port}"
        self._server.start()

    def begin(self, *script, trailing=()):
        """Forgets what came."""
        self.seen, self.metadata, self.left = Counter(), [], []
        self.script, self.trailing = list(script), trailing

    def kill(self):
        """Ends at once, with calls under way."""
        self._server.stop(0)

    def stop(self):
        """Ends, and lets those go that hang."""
        self._server.stop(0)
        self.gate.set()

    def answer(self, method, request, context):
        """What a call does; the answer is the request."""
        self.seen[method] += 1
        self.metadata.append(dict(context.invocation_metadata()))
        self.left.append(context.time_remaining())
        does = self.script.pop(0) if self.script else method
        if self.trailing:
            context.set_trailing_metadata(self.trailing)
        if does == "hang":
            self.gate.wait(60)
        elif does == "raise":
            raise ValueError("a defect")
        elif does != "echo":
            context.abort(grpc.StatusCode[does], "as asked")
        return request
