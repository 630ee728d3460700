#!/usr/bin/env python3
"""Whom members of an all-gather wait for when one link is slow (network namespaces, so as root; Python alone).

  tests/bench/link_waiting.py [--hosts 4] [--rounds 40]

Every host sends 256 KiB to every other one, over a connection of each pair, and begins the next round when it has
those of all others: what GlooMember::AllGatherV does. Links carry 400 Mbit/s, that from w0 to w1 20. Printed: for each
host (row) the seconds in which it lacked the bytes of one other host (column) alone.
"""

import argparse
import json
import selectors
import socket
import subprocess
import sys
import threading
import time

import elastic_bench

BYTES, PORT = 1 << 18, 29600


def connect(rank, addresses):
    """By rank: dials those before, listens for those after."""
    listener = socket.create_server((addresses[rank], PORT))
    peers = {}
    for other in range(rank):
        while other not in peers:
            try:
                peers[other] = socket.create_connection((addresses[other], PORT))
            except OSError:
                time.sleep(0.05)
        peers[other].sendall(bytes([rank]))
    while len(peers) < len(addresses) - 1:
        connection = listener.accept()[0]
        peers[connection.recv(1)[0]] = connection
    return peers


def exchange(peers, waited):
    senders = [threading.Thread(target=peer.sendall, args=(bytes(BYTES),)) for peer in peers.values()]
    for sender in senders:
        sender.start()
    left, last = dict.fromkeys(peers, BYTES), None
    with selectors.DefaultSelector() as selector:
        for rank, peer in peers.items():
            selector.register(peer, selectors.EVENT_READ, rank)
        while selector.get_map():
            for key, _ in selector.select():
                left[key.data] -= len(key.fileobj.recv(left[key.data]))
                if left[key.data] == 0:
                    selector.unregister(key.fileobj)
                    if len(selector.get_map()) == 1:
                        last, since = next(iter(selector.get_map().values())).data, time.time()
    waited[last] += time.time() - since
    for sender in senders:
        sender.join()


def member(rank, rounds, addresses):
    peers = connect(rank, addresses)
    waited = [0.0] * len(addresses)
    for _ in range(rounds):
        exchange(peers, waited)
    print(json.dumps(waited))


def main():
    if sys.argv[1:2] == ["member"]:
        return member(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    names = [f"w{i}" for i in range(options.hosts)]
    hosts = elastic_bench.Hosts(names)
    try:
        hosts.limit(400)
        device = f"-n {hosts.prefix}w0 %s dev eth0"
        hosts.ip(device % "qdisc replace" + " root handle 1: htb default 1",
                 device % "class add" + " parent 1: classid 1:1 htb rate 400mbit quantum 30000",
                 device % "class add" + " parent 1: classid 1:2 htb rate 20mbit quantum 30000",
                 device % "filter add" + f" protocol ip parent 1: u32 match ip dst {hosts.addresses['w1']} flowid 1:2",
                 tool="tc")
        addresses = list(hosts.addresses.values())
        running = [subprocess.Popen([*hosts.on(name), "python3", __file__, "member", str(rank), str(options.rounds),
                                     *addresses], stdout=subprocess.PIPE, text=True) for rank, name in enumerate(names)]
        print("      " + "".join(f"{name:>8}" for name in names))
        for name, process in zip(names, running):
            print(f"{name:6}" + "".join(f"{seconds:8.2f}" for seconds in json.loads(process.communicate()[0])))
    finally:
        hosts.remove()


if __name__ == "__main__":
    main()
