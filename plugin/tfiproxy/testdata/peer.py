# A gRPC client that is not Go's: unary calls, then a stream both ways, over one
# channel. It prints the codes and details that it sees, a line a call.
import sys

import grpc

address, trace = sys.argv[1:3]
metadata = (("traceparent", trace),)
with grpc.insecure_channel(address) as channel:

    def unary(method, message):
        try:
            got = channel.unary_unary(method)(message, timeout=10, metadata=metadata)
            print("OK", len(got) if got == message else "another message")
        except grpc.RpcError as e:
            print(e.code().name, e.details())

    unary("/s/Echo", b"hello")
    unary("/s/Echo", b"x" * 3000000)
    unary("/s/Fail", b"hello")
    unary("/s/Faulted", b"hello")
    unary("/s/Faulted", b"hello")
    sent = [b"%d" % i * 1000 for i in range(50)]
    got = list(channel.stream_stream("/s/Bidi")(iter(sent), timeout=10, metadata=metadata))
    print("OK" if got == sent else "other messages", len(got))
