#!/usr/bin/python3
"""A UET peer as a process: commands come as JSON lines on standard input, events leave as JSON lines.

    peer.py                   serve commands until "quit" or the end of the input
    peer.py role              one role of one case, as an image of the testbed: UET_ROLE, UET_CASE,
                              UET_PEERS, UET_SEED, UET_LIMIT; ends with 127 if it does not know the case

README.md beside it lists the commands.
"""
import dataclasses
import hashlib
import json
import os
import selectors
import signal
import sys
import time

import outer
import tss
from faults import Faults
from fep import Config, Fep
from ses import POISON
from sockets import Sockets
from wire import *

QUIET = ("ack", "nack", "retry", "control", "control acknowledged")  # events that must be asked for


def content(seed, n, size):
    """The bytes of message n of a run. The other side makes the same ones."""
    return hashlib.shake_128(b"%d:%d:%d" % (seed, n, size)).digest(size)


class Node:
    """An endpoint with its sockets, its faults and its events."""

    def __init__(self, name, command, say):
        self.name, self.say, self.pdcid = name, say, command.get("pdcid")
        fields = {f.name for f in dataclasses.fields(Config)}
        self.cfg = Config(**{k: v for k, v in command.items() if k in fields and k != "domain"})
        if command.get("key"):
            self.cfg.domain = tss.Domain({int(command.get("an", 0)): bytes.fromhex(command["key"])},
                                         command.get("sdi", 1), command.get("ssi"), int(command.get("an", 0)),
                                         command.get("epoch", 0), command.get("rekey_mask", 0),
                                         command.get("rekey_shift", 0), command.get("tsc", 0))
        self.sockets = Sockets(self.cfg, command.get("checksum", False), command.get("need_checksum", False))
        self.watch = set(command.get("watch", ()))
        self.dump_to = None
        self.set_faults(command.get("faults", {}))
        self.start(time.monotonic())

    def start(self, now):
        """Begins a life: nothing of an earlier one is known but the address."""
        self.codes = {}
        self.cfg.pdcid = self.pdcid
        self.fep = Fep(self.cfg, now, self.event)
        if self.dump_to:
            self.fep.dump = self.dump
        self.cfg.seed += 1

    def set_faults(self, f):
        self.faults_in = Faults(f.get("seed", 1), f.get("loss", 0), f.get("dup", 0), f.get("reorder", 0),
                                f.get("delay", 0.003), f.get("longest", 0))
        self.faults_out = Faults(f.get("seed", 1) + 7919, f.get("loss", 0), f.get("dup", 0), f.get("reorder", 0),
                                 f.get("delay", 0.003), f.get("longest", 0))

    def event(self, kind, fields):
        if kind == "nack":
            self.codes["%02X" % fields["code"]] = self.codes.get("%02X" % fields["code"], 0) + 1
        if kind not in QUIET or kind in self.watch:
            self.say(dict(fields, ev=kind, id=self.name))

    def dump(self, sent, path, packet):
        print("%.6f %s %s:%d %s:%d %s" % (time.monotonic(), "sent" if sent else "got", self.cfg.ip, path.local_port,
                                          path.ip, path.port, bytes(packet).hex()), file=self.dump_to, flush=True)

    def arrived(self, now, s):
        for _ in range(64):
            got = self.sockets.receive(s)
            if got is None:
                return
            if got[1] is None:
                continue
            for data, path, ce in self.faults_in.put(now, got):
                self.fep.receive(now, data, path, ce)

    def turn(self, now):
        for data, path, ce in self.faults_in.due(now):
            self.fep.receive(now, data, path, ce)
        self.fep.tick(now)
        self.fep.pump(now)
        out, self.fep.out = self.fep.out, []
        for p in out:
            for path, data in self.faults_out.put(now, p):
                self.sockets.send(path, data)
        for path, data in self.faults_out.due(now):
            self.sockets.send(path, data)

    def stats(self):
        f = self.fep
        return dict(f.stats, nack_codes=self.codes, pdcs=len(f.by_id),
                    lost=self.faults_in.lost + self.faults_out.lost, long=self.faults_in.long + self.faults_out.long,
                    undelivered=sum(len(s.unexpected) for s in f.ses.spaces.values()),
                    posted=sum(len(s.posted) for s in f.ses.spaces.values()))


class Server:
    def __init__(self, reader, say):
        self.selector = selectors.DefaultSelector()
        self.nodes = {}
        self.say, self.input, self.rest, self.over = say, reader, b"", False
        if reader is not None:
            os.set_blocking(reader, False)
            self.selector.register(reader, selectors.EVENT_READ, None)

    def run(self, until=None):
        """Serves until the input ends, or until the condition holds."""
        while not self.over and not (until and until()):
            now = time.monotonic()
            busy = any(n.fep.busy() for n in self.nodes.values())
            held = any(n.faults_in.held or n.faults_out.held for n in self.nodes.values())
            for key, _ in self.selector.select(0.001 if held else 0.004 if busy else 0.1):
                now = time.monotonic()
                if key.data is None:
                    self.read()
                else:
                    key.data.arrived(now, key.fileobj)
            for n in list(self.nodes.values()):
                n.turn(now)

    def read(self):
        try:
            b = os.read(self.input, 1 << 20)
        except BlockingIOError:
            return
        if not b:
            self.over = True
            return
        lines = (self.rest + b).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            if line.strip():
                try:
                    self.do(json.loads(line))
                except Exception as e:  # the driver is told, and decides
                    self.say({"ev": "error", "what": "%s: %s" % (type(e).__name__, e), "command": line.decode()[:300]})

    def do(self, c):
        """One command."""
        now, what = time.monotonic(), c["do"]
        if what == "quit":
            self.over = True
            return
        if what == "open":
            n = self.nodes[c["id"]] = Node(c["id"], c, self.say)
            for s in n.sockets.receive_on:
                self.selector.register(s, selectors.EVENT_READ, n)
            self.say({"ev": "open", "id": c["id"], "ip": n.cfg.ip, "port": n.cfg.port, "evs": n.cfg.evs})
            return
        n = self.nodes[c["id"]]
        f = n.fep
        if what == "shut":  # gone at once, without a word
            for s in n.sockets.receive_on:
                self.selector.unregister(s)
            n.sockets.close()
            del self.nodes[c["id"]]
            self.say({"ev": "shut", "id": c["id"]})
        elif what == "restart":
            n.start(now)
            self.say({"ev": "restarted", "id": c["id"]})
        elif what == "set":
            for k, v in c.items():
                if k == "faults":
                    n.set_faults(v)
                elif k == "need_checksum":
                    n.sockets.need_checksum(v)
                elif k == "watch":
                    n.watch = set(v)
                elif k == "dump":
                    n.dump_to = open(v, "w")
                    f.dump = n.dump
                elif k not in ("do", "id"):
                    if not hasattr(n.cfg, k):
                        raise ValueError("no setting " + k)
                    setattr(n.cfg, k, v)
        elif what == "post":
            tags = c.get("tags")
            for i, size in enumerate(c["sizes"]):
                f.ses.post(now, c.get("ctx", 0) + i, size, tags[i] if tags else None, c.get("ignore", 0))
        elif what == "send":
            to, tags, data = c["to"], c.get("tags"), c.get("data")
            forms = {"std": NH_STD, "medium": NH_MEDIUM}
            for i, size in enumerate(c["sizes"]):
                number = c.get("ctx", 0) + i
                how = dict(ordered=c.get("ordered", False), tag=tags[i] if tags else None,
                           data=data + i if data is not None else None, dc=c.get("dc", False))
                where = (to["ip"], to.get("port", outer.PORT), content(c["seed"], number, size))
                end = (to.get("pid", 0), to.get("ri", 15), to.get("job"), to.get("relative", True))
                if size and "eager" in c:
                    f.announce(now, number, *where, c["eager"][i % len(c["eager"])], *end, **how)
                else:
                    f.send(now, number, *where, *end, form=forms[c.get("form", "std")], **how)
        elif what == "region":
            size = c["size"]
            data = content(c["seed"], c["ctx"], size) if "seed" in c else bytes(c.get("zero", False) * size) or \
                bytes([POISON]) * size
            f.ses.region(c["key"], data, c.get("rights", ("read", "write")))
        elif what == "look":
            r = f.ses.regions[c["key"]]
            data = bytes(r.look(c.get("at", 0), c.get("len", r.size)))
            self.say({"ev": "region", "id": c["id"], "ctx": c.get("ctx", 0), "len": len(data), "guard": r.guard(),
                      "sha256": hashlib.sha256(data).hexdigest(), "hex": data[:64].hex()})
        elif what in ("write", "read", "atomic"):
            to, at = c["to"], c["at"]
            forms = {"std": NH_STD, "medium": NH_MEDIUM, "small": NH_SMALL}
            for i, offset in enumerate(at):
                number = c.get("ctx", 0) + i
                how = dict(ordered=c.get("ordered", False), form=forms[c.get("form", "std")], dc=c.get("dc", False))
                if what == "write":
                    opcode = WRITE
                    how.update(payload=content(c["seed"], number, c["sizes"][i]),
                               data=c["data"] + i if "data" in c else None)
                elif what == "read":
                    opcode = READ
                    how.update(size=c["sizes"][i])
                else:
                    opcode = FETCHING_ATOMIC if c.get("fetch", True) else ATOMIC
                    how.update(operation=c["operation"], operand=c["operand"][i],
                               compare=c["compare"][i] if "compare" in c else 0, datatype=c.get("datatype", UINT64))
                f.remote(now, number, to["ip"], to.get("port", outer.PORT), opcode, c["key"], offset, to.get("pid", 0),
                         to.get("ri", 15), to.get("job"), to.get("relative", True), **how)
        elif what == "close":
            for pdc in list(f.by_id.values()):
                if pdc.target == c.get("targets", False):
                    pdc.close(now)
        elif what == "control":
            to = c["to"]
            pdc = f.pdc_to(now, to["ip"], to.get("port", outer.PORT), c.get("ordered", False))
            pdc.send_control(c["ctl"], bytes.fromhex(c.get("tail", "")))
        elif what == "inject":
            path = outer.Path(c.get("from_port", n.cfg.port), c["ip"], c.get("port", outer.PORT))
            f.emit(path, bytes.fromhex(c["hex"]))
        elif what == "stats":
            self.say(dict(n.stats(), ev="stats", id=c["id"]))
        else:
            raise ValueError("no command " + what)


def role():
    """One role of one case, alone: a client sends, a server sends everything back."""
    cases = {"interop-rud": dict(ordered=False), "interop-rod": dict(ordered=True)}
    name, case = os.environ.get("UET_ROLE", ""), os.environ.get("UET_CASE", "")
    if case not in cases or name not in ("server", "client") or os.environ.get("UET_SEC"):
        return 127
    peers = dict(p.split("=", 1) for p in os.environ["UET_PEERS"].split(",") if p)
    if name not in peers or (name == "client" and "server" not in peers):
        return 127
    seed = int(os.environ.get("UET_SEED", "1"))
    say = lambda e: print(json.dumps(e), flush=True)
    server = Server(None, say)
    sizes = [0, 1, 100, 1024, 1025, 5000, 30000, 100000]
    kept, ended = [], []

    def hear(e):
        say(e)
        (kept if e["ev"] == "received" else ended if e["ev"] == "sent" else []).append(e)

    server.say = hear
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "over", True))
    server.do(dict(do="open", id=name, ip=peers[name], encap=os.environ.get("UET_ENCAP", outer.STANDARD),
                   port=outer.PORT, seed=seed + len(name)))
    node = server.nodes[name]
    out = os.environ.get("UET_OUT")
    if out and os.environ.get("UET_WAIT") == "1":
        open(os.path.join(out, "ready"), "w").close()
    if name == "server":
        # It echoes by content: the client's messages are known by their number in the header data.
        node.fep.ses.post(time.monotonic(), 0, 1 << 20)
        done = [0]

        def echo():
            while done[0] < len(kept):
                e = kept[done[0]]
                done[0] += 1
                if e["sha256"] != hashlib.sha256(content(seed, e["data"], e["len"])).hexdigest():
                    raise SystemExit(1)
                node.fep.ses.post(time.monotonic(), done[0], 1 << 20)
                node.fep.send(time.monotonic(), e["data"], e["src"], outer.PORT, content(seed, e["data"], e["len"]),
                              data=e["data"], **cases[case])
            return server.over

        server.run(echo)
        return 0
    if out and os.environ.get("UET_WAIT") == "1":
        go = os.path.join(out, "go")
        server.run(lambda: os.path.exists(go))
    limit = os.environ.get("UET_LIMIT", "30s")
    end = time.monotonic() + float(limit.rstrip("s") if limit[-1] == "s" and limit[-2:] != "ms" else 30)
    for n, size in enumerate(sizes):
        node.fep.ses.post(time.monotonic(), n, 1 << 20)
        node.fep.send(time.monotonic(), n, peers["server"], outer.PORT, content(seed, n, size), data=n, **cases[case])
    server.run(lambda: time.monotonic() > end or (len(kept) == len(sizes) and len(ended) == len(sizes)))
    if len(kept) < len(sizes) or len(ended) < len(sizes):
        return 124
    right = all(e["ok"] for e in ended) and sorted(e["data"] for e in kept) == list(range(len(sizes))) and \
        all(e["sha256"] == hashlib.sha256(content(seed, e["data"], sizes[e["data"]])).hexdigest() for e in kept)
    return 0 if right else 1


def main():
    if sys.argv[1:2] == ["role"] or (not sys.argv[1:] and os.environ.get("UET_ROLE")):
        sys.exit(role())
    out = sys.stdout

    def say(e):
        out.write(json.dumps(e) + "\n")
        out.flush()

    Server(sys.stdin.fileno(), say).run()


if __name__ == "__main__":
    main()
