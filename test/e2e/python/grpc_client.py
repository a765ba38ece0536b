"""A grpcio client (C-core) that finds its servers by xDS, with its bootstrap in the file that GRPC_XDS_BOOTSTRAP names.

Each line on stdin, `ID TARGET SECONDS`, is a call with this deadline; on stdout follows `ID answer NAME` or
`ID error CODE MESSAGE`.
"""

import functools
import sys

import grpc


def main():
    print("version", grpc.__version__, flush=True)
    for line in sys.stdin:
        number, target, seconds = line.split()
        who(target).future(b"", timeout=int(seconds)).add_done_callback(functools.partial(report, number))


@functools.cache
def who(target):
    return grpc.insecure_channel(target).unary_unary("/test.Backend/Who")  # without serializers: bytes as they are


def report(number, call):
    if call.code() is grpc.StatusCode.OK:
        outcome = f"answer {call.result().decode()}"
    else:
        details = (call.details() or "").replace("\n", " ")
        outcome = f"error {call.code().value[0]} {details}"
    sys.stdout.write(f"{number} {outcome}\n")  # one write: callbacks run in several threads
    sys.stdout.flush()


if __name__ == "__main__":
    main()
