# A gRPC peer on gRPC's C core. See peers_test.go for what it says and hears.
#   peer.py call ADDRESS TRACE CALL...    CALL is KIND:METHOD:MESSAGES:BYTES
#   peer.py serve
import sys
import time
from concurrent import futures

import grpc

LIMIT = [("grpc.max_receive_message_length", 64 << 20)]


def stub(channel, kind, method):
    return {
        "unary": channel.unary_unary,
        "server": channel.unary_stream,
        "client": channel.stream_unary,
        "bidi": channel.stream_stream,
    }[kind](method)


def call(channel, trace, kind, method, messages, size):
    sent = [b"%d " % i + b"x" * size for i in range(messages)]
    metadata = (("traceparent", trace), ("x-kind", kind))
    got, code, details, trailers, begun = [], "OK", "", (), time.monotonic()
    call = None
    try:
        argument = iter(sent) if kind in ("client", "bidi") else sent[0]
        if kind in ("unary", "client"):
            answer, call = stub(channel, kind, method).with_call(argument, timeout=20, metadata=metadata)
            got = [answer]
        else:
            call = stub(channel, kind, method)(argument, timeout=20, metadata=metadata)
            for answer in call:
                got.append(answer)
        details = call.details() or ""
        trailers = tuple(call.initial_metadata() or ()) + tuple(call.trailing_metadata() or ())
    except grpc.RpcError as e:
        code, details = e.code().name, e.details() or ""
        trailers = tuple(e.trailing_metadata() or ())
    took = int((time.monotonic() - begun) * 1000)
    fic = ",".join(sorted(f"{k}={v}" for k, v in trailers if k.startswith("x-fic-")))
    print(kind, method, code, len(got), sum(map(len, got)), took, fic or "-", details, sep="|")


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        kind = dict(details.invocation_metadata).get("x-kind", "bidi")
        evidence = any(k == "x-fic-evidence" for k, _ in details.invocation_metadata)

        def answer(requests, context):
            total = 0
            for request in requests:
                total += len(request)
                if kind == "server":
                    for _ in range(20):
                        yield request
                elif kind != "client":
                    yield request
            if kind == "client":
                yield b"%d" % total
            if evidence:
                context.set_trailing_metadata((("saw-evidence", "1"),))
            if details.method == "/s/Fail":
                context.abort(grpc.StatusCode.NOT_FOUND, "nothing — here")

        return grpc.stream_stream_rpc_method_handler(answer)


if sys.argv[1] == "call":
    with grpc.insecure_channel(sys.argv[2], options=LIMIT) as channel:
        for text in sys.argv[4:]:
            kind, method, messages, size = text.split(":")
            call(channel, sys.argv[3], kind, method, int(messages), int(size))
else:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), handlers=[Echo()], options=LIMIT)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()  # until the test ends
    server.stop(None)
