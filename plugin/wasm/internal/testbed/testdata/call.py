"""Makes one gRPC call and prints its status: ADDRESS METHOD unary|stream [name=value ...]."""
import sys

import grpc


def main():
    address, method, shape = sys.argv[1:4]
    metadata = [tuple(pair.split("=", 1)) for pair in sys.argv[4:]]
    with grpc.insecure_channel(address) as channel:
        make = channel.unary_unary if shape == "unary" else channel.unary_stream
        call = make(method, request_serializer=bytes, response_deserializer=bytes)
        got = 0
        try:
            answer = call(b"hello", metadata=metadata, timeout=10)
            got = 1 if shape == "unary" else sum(1 for _ in answer)
            print(0, "", got, sep="|")
        except grpc.RpcError as e:
            print(e.code().value[0], e.details(), got, sep="|")


main()
