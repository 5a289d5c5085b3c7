"""Python's sockets on both sides of the proxy: streams.py UPSTREAM KIND ADDRESS [KIND ADDRESS]...

UPSTREAM is the port to serve on; each KIND (tcp, unix, json) with its ADDRESS is a listener that leads there. The
upstream echoes what comes and ends its half when the client has; a first line `end` makes it end first.
"""

import json
import socket
import socketserver
import struct
import sys
import threading
import time

OK = b'{"JSONSocketVersion":1,"JSONSocketStatus":200,"JSONSocketMessage":"OK"}'
collected = []


class Upstream(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            first = self.request.recv(4)
            if first == b"end\n":
                self.request.sendall(b"said first")
                self.request.shutdown(socket.SHUT_WR)
                rest = b""
                while data := self.request.recv(65536):
                    rest += data
                collected.append(rest)
                return
            data = first
            while data:
                self.request.sendall(data)
                data = self.request.recv(65536)
            self.request.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True


def connect(kind, address):
    if kind == "unix":
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(address)
    else:
        client = socket.create_connection(("127.0.0.1", int(address)))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.settimeout(20)
    if kind == "json":
        client.sendall(b'{"JSONSocketVersion":1}')
    return client


def rest(kind, client, slowly=False):
    read = bytearray()
    while data := client.recv(1 << 16):
        read += data
        if slowly and len(read) % 7 == 0:
            time.sleep(0.001)
    if kind == "json":
        assert read.startswith(OK), read[:100]
        read = read[len(OK):]
    return bytes(read)


def exchange(kind, address, data, pieces=None, pause=0.0, slow_reader=False):
    client = connect(kind, address)

    def write():
        for piece in pieces or [data]:
            client.sendall(piece)
            time.sleep(pause)
        client.shutdown(socket.SHUT_WR)

    writer = threading.Thread(target=write)
    writer.start()
    if slow_reader:
        time.sleep(0.3)
    got = rest(kind, client, slow_reader)
    writer.join()
    assert got == data, f"{len(got)} of {len(data)} bytes"


def pattern(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def speak(kind, address):
    small = pattern(300)
    exchange(kind, address, small)
    print(kind, "all at once")
    exchange(kind, address, small, [small[i:i + 1] for i in range(len(small))])
    print(kind, "one byte at a time")
    exchange(kind, address, small, [small[:100], small[100:200], small[200:]], pause=0.05)
    print(kind, "slow writer")
    exchange(kind, address, pattern(64 << 10))
    print(kind, "64 KiB")
    exchange(kind, address, pattern(16 << 20))
    print(kind, "16 MiB")
    exchange(kind, address, pattern(8 << 20), slow_reader=True)
    print(kind, "slow reader")
    exchange(kind, address, b"", [])
    print(kind, "early end")
    client = connect(kind, address)
    client.sendall(b"end\n")
    assert rest(kind, client) == b"said first"
    client.sendall(b"said later")
    client.shutdown(socket.SHUT_WR)
    until = time.time() + 20
    while b"said later" not in collected:
        assert time.time() < until, collected
        time.sleep(0.01)
    collected.clear()
    client.close()
    print(kind, "upstream ends first")
    client = connect(kind, address)
    client.sendall(b"reset")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    exchange(kind, address, small)
    print(kind, "reset")


def main():
    server = Server(("127.0.0.1", int(sys.argv[1])), Upstream, bind_and_activate=False)
    listeners = list(zip(sys.argv[2::2], sys.argv[3::2]))
    # early data and an upstream that refuses first: clients come before the server does
    early = []
    for kind, address in listeners:
        client = connect(kind, address)
        client.sendall(b"early")
        client.shutdown(socket.SHUT_WR)
        early.append(client)
    time.sleep(0.3)
    server.server_bind()
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for (kind, address), client in zip(listeners, early):
        assert rest(kind, client) == b"early"
        print(kind, "upstream late")
    for kind, address in listeners:
        speak(kind, address)
    server.shutdown()


main()
