"""What this peer must get right before it talks to anybody: known answers, captures, itself.

    python3 selftest.py [FOLDER OF CAPTURES]

Known answers are of CRC-32C, of the KDF and of headers; captures (where there are some) must decode,
encode to the same bytes, and have the CRC or ICV that this code computes; then two endpoints in
memory, with a clock of their own, send each other messages through a network that loses, copies and
reorders, in every combination.
"""
import collections
import hashlib
import itertools
import json
import os
import struct
import sys

import outer
import tss
from faults import Faults
from fep import Config, Fep
from peer import content
from wire import *

h = bytes.fromhex


def equal(what, got, want):
    if got != want:
        raise AssertionError("%s: got %r, want %r" % (what, got, want))


def known_answers():
    equal("CRC", outer.crc32c(b"123456789"), 0xE3069283)
    equal("CRC of zeros", outer.crc32c(bytes(32)), 0x8A9136AA)
    # A CLEAR over UDP, 10.0.0.1:0x4242 to 10.0.0.2:4793.
    cp = Control(CLEAR_CMD, 0, 0, 0, 5, 9, 0x00012345).pack()
    equal("CLEAR", cp, h("59000000000000000005000900012345"))
    out = outer.udp_outer(outer.packed("10.0.0.1"), outer.packed("10.0.0.2"), 0x4242, 4793, len(cp) + 4)
    equal("CRC over UDP", outer.with_crc(out, cp)[-4:], h("9b31e464"))
    equal("and back", outer.without_crc(out, outer.with_crc(out, cp)), cp)
    equal("a wrong bit", outer.without_crc(out, b"\x58" + outer.with_crc(out, cp)[1:]), None)
    ack = Ack(ACK, NH_NONE, 0, 1, 0x00012345, 9, 5).pack()
    equal("ACK of a CLOSE", ack, h("380000010001234500090005"))
    for value, kind, nh, flags in ((0x1180, RUD_REQ, NH_STD, 0), (0x118C, RUD_REQ, NH_STD, F_SYN | F_AR),
                                   (0x1998, ROD_REQ, NH_STD, F_RETX | F_AR), (0x3A00, ACK, NH_RSP, 0),
                                   (0x3A02, ACK, NH_RSP, REQ_CLEAR << 1), (0x4220, ACK_CC, NH_RSP, A_M),
                                   (0x5000, NACK, NH_NONE, 0), (0x5A08, CP, CLOSE_CMD, F_AR),
                                   (0x5888, CP, ACK_REQ, F_AR), (0x5A88, CP, CLOSE_REQ, F_AR)):
        equal("prologue", prologue(kind, nh, flags), value)
    # SES headers: what each is stands in front of its bytes.
    for text, r in (
            ("012d0102000123450 00a000f000000000000100000000010800000000000004211223344556677880000 09c4",
             SesRequest(NH_STD, WRITE, S_DC | S_REL | S_HD | S_SOM, 0x102, 0, 0x12345, 10, 15, 0x1000, 16,
                        0x8000000000000042, 0x1122334455667788, 2500)),
            ("040b0106000123450 00a000f 0000000000000040 00000010 0000000000000042 0000000000000000 00000008 02070200",
             SesRequest(NH_STD, FETCHING_ATOMIC, S_REL | S_EOM | S_SOM, 0x106, 0, 0x12345, 10, 15, 0x40, 16, 0x42, 0, 8,
                        ext=h("02070200"))),
            ("040b0107000123450 00a000f 0000000000000040 00000010 0000000000000042 0000000000000000 0000002"
             "00d0702000000000000000000000000000000000a00000000000000000000000000000014",
             SesRequest(NH_STD, FETCHING_ATOMIC, S_REL | S_EOM | S_SOM, 0x107, 0, 0x12345, 10, 15, 0x40, 16, 0x42, 0, 32,
                        ext=h("0d070200") + struct.pack("!QQQQ", 0, 10, 0, 20))),
            ("01280102000123450 00a000f0000000000001000000000108000000000000042000004000000040000000 9c4",
             SesRequest(NH_STD, WRITE, S_DC | S_REL, 0x102, 0, 0x12345, 10, 15, 0x1000, 16, 0x8000000000000042, 0,
                        2500, 1024, 1024)),
            ("090f012c00012345000a000f00000000deadbeef0000001000000000cafe0001",
             SesRequest(NH_MEDIUM, TAGGED_SEND, S_REL | S_HD | S_EOM | S_SOM, 0, 0, 0x12345, 10, 15, 0, 16,
                        0xCAFE0001, 0xDEADBEEF, 300)),
            ("010300400000000000030123000000000 0000200",
             SesRequest(NH_SMALL, WRITE, S_EOM | S_SOM, 0, 0, 0, 3, 0x123, 0x200, 0, 0, 0, 64))):
        b = h(text.replace(" ", ""))
        equal("SES request", r.pack().hex(), b.hex())
        got, _ = parse_ses_request(r.form, b + bytes(r.pay_len))
        got.pay_len = r.pay_len  # no payload stands behind it here
        equal("SES request back", got, r)
    for text, form, r in (
            ("0001010200012345000009c4", NH_RSP, SesResponse(DEFAULT_RESPONSE, RC_OK, 0x102, 0, 0x12345, 2500)),
            ("000001020000000000000000", NH_RSP, SesResponse(DEFAULT_RESPONSE, RC_NULL, 0x102)),
            ("010201030701234500000000", NH_RSP, SesResponse(RESPONSE, RC_BAD_GENERATION, 0x103, 7, 0x12345)),
            ("410101040001234500000000", NH_RSP, SesResponse(RESPONSE, RC_OK, 0x104, 0, 0x12345, list=OVERFLOW)),
            ("0201010500012345010500080000000800000000", NH_RSP_DATA,
             SesResponse(RESPONSE_W_DATA, RC_OK, 0x105, 0, 0x12345, 8, form=NH_RSP_DATA, pay_len=8, read_msg_id=0x105)),
            ("020100100001234500010010", NH_RSP_DATA_SMALL,
             SesResponse(RESPONSE_W_DATA, RC_OK, 0, 0, 0x12345, form=NH_RSP_DATA_SMALL, pay_len=16, psn=0x10010))):
        equal("SES response", r.pack().hex(), text)
        equal("SES response back", parse_ses_response(form, h(text))[0], r)
    key = h("34448a064292601b11a0978f56a2d34cf3fc35ede1a6bc04f8db3e5243a2b0ca")
    v4, v6 = outer.packed("192.168.42.1"), outer.packed("2001:cb0::fc0:0:0:abc")
    for source, k, mask in ((v4, "151b4ddb30112971ddeff3213000ee74d8f18aac2135601f1e5215e505fed449",
                             "a7c6992c26b0bd5dd5c20e0c"),
                            (v6, "55d1ee8647bd53fad0e5325795af18e7559b7d42a895edf70f9c170341e8f767",
                             "9c96a5752fb5669ccd5ded3f")):
        got = tss.kdf(key, b"U1", tss.cluster_context(0x1DC0, 0x74E5, source, None))
        equal("KDF", (got[0].hex(), got[1].hex()), (k, mask))
    a, b = tss.Domain({0: key}, 7, ssi=1), tss.Domain({0: key}, 7, ssi=2)
    sealed = a.seal(b"outer", v4, b"plain")
    equal("opened", b.open(b"outer", v4, sealed), b"plain")
    for changed in (sealed[:-1] + bytes([sealed[-1] ^ 1]), bytes([sealed[0] ^ 2]) + sealed[1:]):
        try:
            b.open(b"outer", v4, changed)
            raise AssertionError("opened what was changed")
        except tss.Refused:
            pass
    equal("serial numbers", (sub(5, 0xFFFFFFFE), sub(0xFFFFFFFE, 5), add(0xFFFFFFFF, 2)), (7, -7, 1))


def pcap(path):
    """The Ethernet frames of a capture."""
    b = open(path, "rb").read()
    order = "<" if b[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at < len(b):
        n, = struct.unpack_from(order + "I", b, at + 8)
        yield b[at + 16:at + 16 + n]
        at += 16 + n


def network(frame):
    """Of an IP packet over Ethernet: addresses, next protocol, what is behind the IP header."""
    if frame[12:14] == b"\x08\x00":
        n, = struct.unpack_from("!H", frame, 16)
        return frame[26:30], frame[30:34], frame[23], frame[34:14 + n]
    n, = struct.unpack_from("!H", frame, 18)
    return frame[22:38], frame[38:54], frame[20], frame[54:54 + n]


def same_bytes(where, body):
    """Decodes a PDS packet with its SES header and encodes it again."""
    hdr, rest = parse_pds(body)
    again = hdr.pack()
    if isinstance(hdr, Request) and hdr.next_hdr in (NH_SMALL, NH_MEDIUM, NH_STD):
        r, pay = parse_ses_request(hdr.next_hdr, rest)
        again += r.pack() + pay
    elif isinstance(hdr, (Request, Ack)) and hdr.next_hdr in (NH_RSP, NH_RSP_DATA, NH_RSP_DATA_SMALL):
        r, data = parse_ses_response(hdr.next_hdr, rest)
        again += r.pack() + data
    elif isinstance(hdr, Ack) and hdr.epsn is not None:
        again += struct.pack("!I", hdr.epsn)
    equal(where, again.hex(), body.hex())


def captures(folder):
    n = sealed = 0
    kat = json.load(open(os.path.join(folder, "tss-kat.json")))
    opened = {}
    for k in kat["kdf"]:
        key, mask = tss.kdf(h(k["master_key"]), k["label"].encode(), h(k["context"]))
        equal(k["name"], (key.hex(), mask.hex()), (k["key"], k["ivmask"]))
    for p in kat["packets"]:
        opened[p["file"], p["frame"]] = p
        if p["mode"] != "cluster":
            continue
        aad, body = h(p["aad"]), h(p["ciphertext"]) + h(p["icv"])
        hdr, at = tss.Header.parse(aad[(12 if p["family"] == "ipv4" else 36):] + bytes(16))
        source = aad[:4 if p["family"] == "ipv4" else 16]
        covered, header = aad[:len(aad) - at], aad[len(aad) - at:]
        equal("security header", hdr.pack().hex(), header.hex())
        for mask, shift in ((0xFF00, 8), (0, 0)):
            d = tss.Domain({hdr.an: h(p["domain_key"])}, hdr.sdi, mask=mask, shift=shift)
            try:
                got = d.open(covered, source, header + body)
            except tss.Refused:
                continue
            equal("opened", got.hex(), p["plaintext"])
            sealed += 1
            break
        else:
            raise AssertionError("%s %d does not open" % (p["file"], p["frame"]))
    for name in sorted(os.listdir(folder)):
        if not (name.startswith("refprov-") and name.endswith(".pcap")):
            continue
        for i, frame in enumerate(pcap(os.path.join(folder, name)), 1):
            src, dst, proto, body = network(frame)
            equal("protocol", proto, 253)
            where = "%s %d" % (name, i)
            if body[4] >> 3 == tss.TYPE:
                k = opened.get((name, i))
                if k:
                    same_bytes(where, h(k["plaintext"]))
                continue
            # Native IP: in place of the UDP header stands the entropy header.
            plain = outer.without_crc(src + dst + body[:4], body[4:])
            if plain is None:
                raise AssertionError(where + ": CRC")
            same_bytes(where, plain)
            n += 1
    equal("captures", n > 100 and sealed > 5, True)
    return n, sealed


# Two endpoints in memory.


class Pair:
    """Two endpoints and the network between them, in virtual time."""

    def __init__(self, a, b, loss=0.0, dup=0.0, reorder=0.0, seed=1):
        self.now, self.events = 1000.0, [[], []]
        self.feps = [Fep(a, self.now, lambda n, f: self.events[0].append((n, f))),
                     Fep(b, self.now, lambda n, f: self.events[1].append((n, f)))]
        self.net = [Faults(seed, loss, dup, reorder), Faults(seed + 1, loss, dup, reorder)]

    def step(self):
        self.now += 0.0005
        for i, fep in enumerate(self.feps):
            fep.tick(self.now)
            fep.pump(self.now)
        for i, fep in enumerate(self.feps):
            peer = self.feps[1 - i]
            flying = []
            out, fep.out = fep.out, []
            for p in out:
                flying += self.net[i].put(self.now, p)
            for path, data in flying + self.net[i].due(self.now):
                if path.port != peer.cfg.port or path.ip != peer.cfg.ip:
                    if not (peer.cfg.evs and path.port in peer.cfg.evs):
                        raise AssertionError("to nobody: %r" % path)
                peer.receive(self.now, data, outer.Path(path.port, fep.cfg.ip, path.local_port))

    def until(self, done, limit=60.0):
        end = self.now + limit
        while not done():
            self.step()
            if self.now > end:
                raise AssertionError("not done after %g s: %r" % (limit, [dict(f.stats) for f in self.feps]))

    def got(self, i, name):
        return [f for n, f in self.events[i] if n == name]


def configs(**kw):
    b = {k: v for k, v in kw.items()}
    a = Config(ip="192.0.2.1", port=4793, seed=3, **kw)
    b = Config(ip="192.0.2.2", port=4793, seed=4, **b)
    if kw.get("encap") == outer.SYMMETRIC:
        a.port, b.port = 40001, 40002
    return a, b


# Answers that come late, or once for each packet of a burst.
BENIGN = ("dropped: answer to no PDC", "dropped: nack of nothing outstanding")
SIZES = (0, 1, 7, 1023, 1024, 1025, 3000, 20000)


def transfer(p, ordered, tagged, late, form, both):
    """Each message arrives once, whole, ROD in order; nothing is left in the end."""
    ways = (0, 1) if both else (0,)
    sizes = [SIZES[i % len(SIZES)] for i in range(24)]

    def post(i):
        for n, size in enumerate(sizes):
            p.feps[1 - i].ses.post(p.now, n, size if tagged else max(SIZES), n if tagged else None)

    if not late:
        for i in ways:
            post(i)
    for i in ways:
        me, to = p.feps[i], p.feps[1 - i].cfg
        for n, size in enumerate(sizes):
            me.send(p.now, n, to.ip, to.port, content(i, n, size), ordered=ordered, tag=n if tagged else None,
                    data=n + 1000, form=form)
    if late:
        for _ in range(40):
            p.step()
        for i in ways:
            post(i)
    p.until(lambda: all(len(p.got(i, "sent")) >= len(sizes) and len(p.got(1 - i, "received")) >= len(sizes)
                        for i in ways))
    for i in ways:
        sent, received = p.got(i, "sent"), p.got(1 - i, "received")
        equal("sent", sorted(f["ctx"] for f in sent if f["ok"]), list(range(len(sizes))))
        equal("received", sorted(f["data"] - 1000 for f in received), list(range(len(sizes))))
        for f in received:
            n = f["data"] - 1000
            equal("content", f["sha256"], hashlib.sha256(content(i, n, sizes[n])).hexdigest())
            equal("guard", f["guard"], True)
            if tagged:
                equal("matched", f["ctx"], n)
            elif ordered:
                equal("order", f["ctx"], n)
    end(p, ("closed", "closed by peer"))


def memory(p, ordered, form, key, swap_length):
    """Writes, reads and atomics of both sides: contents, old values, bounds and rights; nothing else is touched."""
    size, sizes = 120000, [s for s in SIZES if form == NH_STD or s <= 1024] * 2
    p.feps[0].cfg.cswap_length = p.feps[1].cfg.cswap_length = swap_length
    number, places = 0, []
    for n in sizes:  # every second one where the one before ends, every other with a gap
        places.append(number)
        number += n + (7 if len(places) % 2 else 0)
    keys = dict(w=key, r=key + 1, a=key + 2, ro=key + 3, wo=key + 4)
    for i in (0, 1):
        ses = p.feps[i].ses
        ses.region(keys["w"], bytes(size), ("write",))
        ses.region(keys["r"], content(i, 0, size), ("read",))
        ses.region(keys["a"], bytes(64), ("read", "write"))
        ses.region(keys["ro"], bytes(64), ("read",))
        ses.region(keys["wo"], bytes(64), ("write",))
    wants = {}
    for i in (0, 1):
        me, to = p.feps[i], p.feps[1 - i].cfg

        def do(ctx, want, *args, **how):
            wants[i, ctx] = want
            me.remote(p.now, ctx, to.ip, to.port, *args, ordered=ordered, form=form, **how)

        for n, (at, length) in enumerate(zip(places, sizes)):
            data = None if form != NH_STD or n % 3 else n + 500
            do(n, {}, WRITE, keys["w"], at, payload=content(9 + i, n, length), data=data)
            do(100 + n, dict(sha256=hashlib.sha256(content(1 - i, 0, size)[at:at + length]).hexdigest()),
               READ, keys["r"], at, size=length)
        for n in range(20):
            do(200 + n, None, FETCHING_ATOMIC, keys["a"], 8, operand=1 << n)
            do(300 + n, None, FETCHING_ATOMIC, keys["a"], 16, operation=AMO_CSWAP, compare=n if n % 5 else 77,
               operand=n + 1)
            do(400 + n, {}, ATOMIC, keys["a"], 24, operand=0xFFFFFFFFFFFFFFFF)
        long = 5000 if form == NH_STD else 500
        # A small request names its region by an index.
        do(500, dict(rc=RC_BAD_MKEY if form != NH_SMALL else RC_BAD_INDEX), WRITE, keys["w"] + 99, 0, payload=bytes(long))
        do(501, dict(rc=RC_BAD_MKEY if form != NH_SMALL else RC_BAD_INDEX), READ, keys["w"] + 99, 0, size=long)
        do(502, dict(rc=RC_BAD_ADDR), WRITE, keys["w"], size - long + 1, payload=bytes(long))
        do(503, dict(rc=RC_BAD_ADDR), READ, keys["r"], size - long + 1, size=long)
        do(504, dict(rc=RC_BAD_ADDR), READ, keys["r"], 1 << 40, size=long)
        do(505, dict(rc=RC_PERM), WRITE, keys["r"], 0, payload=bytes(long))
        do(506, dict(rc=RC_PERM), READ, keys["w"], 0, size=long)
        do(507, dict(rc=RC_PERM), FETCHING_ATOMIC, keys["ro"], 0, operand=1)
        do(508, dict(rc=RC_PERM), FETCHING_ATOMIC, keys["wo"], 0, operand=1)
        do(509, dict(rc=RC_BAD_ADDR), FETCHING_ATOMIC, keys["a"], 64, operand=1)
        do(510, dict(rc=RC_AMO_UNALIGNED), FETCHING_ATOMIC, keys["a"], 4, operand=1)
        do(511, dict(rc=RC_AMO_OP), FETCHING_ATOMIC, keys["a"], 0, operation=1, operand=1)
        do(512, dict(rc=RC_AMO_DT), FETCHING_ATOMIC, keys["a"], 0, datatype=6, operand=1)
    p.until(lambda: all(len(p.got(i, "sent")) >= len([k for k in wants if k[0] == i]) for i in (0, 1)))
    for i in (0, 1):
        sent, there = {f["ctx"]: f for f in p.got(i, "sent")}, p.feps[1 - i].ses.regions
        equal("each once", sorted(sent), sorted(c for s, c in wants if s == i))
        equal("as many events", len(p.got(i, "sent")), len(sent))
        for ctx, f in sent.items():
            want = wants[i, ctx] or {}
            equal("%d: rc" % ctx, f["rc"], want.get("rc"))
            if f["ok"] and "sha256" in want:
                equal("%d: read" % ctx, (f["sha256"], f["guard"]), (want["sha256"], True))
        image = bytearray(size)
        for n, (at, length) in enumerate(zip(places, sizes)):
            image[at:at + length] = content(9 + i, n, length)
        equal("written", bytes(there[keys["w"]].look(0, size)) == bytes(image), True)
        equal("read only", bytes(there[keys["r"]].look(0, size)) == content(1 - i, 0, size), True)
        for r in there.values():
            equal("guard", r.guard(), True)
        with_data = [n for n in range(len(sizes)) if form == NH_STD and n % 3 == 0]
        equal("data", sorted(f["data"] - 500 for f in p.got(1 - i, "written")), with_data)
        # Each old value once: in any order they are the sums before each addition.
        total, left = 0, {n: sent[200 + n]["value"] for n in range(20)}
        while left:
            n, = [n for n, v in left.items() if v == total]
            del left[n]
            total += 1 << n
        equal("sum", bytes(there[keys["a"]].look(8, 8)), struct.pack("!Q", total))
        if ordered:
            value = 0
            for n in range(20):
                equal("old", sent[300 + n]["value"], value)
                value = n + 1 if (n if n % 5 else 77) == value else value
            equal("swapped", bytes(there[keys["a"]].look(16, 8)), struct.pack("!Q", value))
        equal("minus one, often", bytes(there[keys["a"]].look(24, 8)), struct.pack("!q", -20))
        odd = [k for k in p.feps[i].stats if k.startswith("odd")]
        equal("odd", odd, [])
    end(p, ("closed", "closed by peer"))


def end(p, whys):
    """All PDCs end, in order, and nothing was dropped that should not be."""
    for fep in p.feps:
        for pdc in list(fep.by_id.values()):
            if not pdc.target:
                pdc.close(p.now)
    p.until(lambda: not any(f.by_id for f in p.feps))
    for i in (0, 1):
        for f in p.got(i, "pdc closed"):
            equal("closed", (f["why"], f["why"] in whys), (f["why"], True))
        for what in p.feps[i].stats:
            if what.startswith("dropped") and what not in BENIGN:
                raise AssertionError("%s: %d" % (what, p.feps[i].stats[what]))


def memories():
    n = 0
    for ordered, form, loss in itertools.product((False, True), (NH_STD, NH_MEDIUM, NH_SMALL), (0.0, 0.05, 0.2)):
        n += 1
        kw = dict(encap=(outer.SYMMETRIC, outer.STANDARD)[n % 2], ack_type=(ACK_CC, ACK, ACK_CCX)[n % 3 if not loss else 0],
                  ack_data=(16, 0, 2000)[n % 3], zero_read=("default", "data")[n % 2], go_back_n=n % 5 == 0,
                  keep_syn=n % 2 == 0, cc_requests=n % 4 == 0, linger=1.0)
        a, b = configs(**kw)
        if n % 4 == 1:
            a.domain, b.domain = (tss.Domain({0: bytes(range(32))}, 9, ssi=s) for s in (1, 2))
        if n % 3 == 0:
            a.start_psn = 0xFFFFFFF0
        if n % 5 == 2:
            b.window = 8
        try:
            memory(Pair(a, b, loss, loss / 4, loss, seed=n), ordered, form, OPTIMIZED | 0x300 if form == NH_SMALL else 70 << n,
                   (8, 32)[n % 2])
        except Exception as e:
            raise AssertionError("combination %d: ordered %s, form %d, loss %g, %r" % (n, ordered, form, loss, kw)) from e
    return n


def pairs():
    n = 0
    cases = itertools.product((False, True), (False, True), (False, True), (NH_STD, NH_MEDIUM), (0.0, 0.05, 0.2))
    for ordered, tagged, late, form, loss in cases:
        n += 1
        encap = (outer.SYMMETRIC, outer.STANDARD)[n % 2]
        kw = dict(encap=encap, ack_type=(ACK_CC, ACK, ACK_CCX)[n % 3 if not loss else 0],
                  unexpected=("overflow", "late", "nomatch", "disable")[n % 4],
                  go_back_n=n % 5 == 0, keep_syn=n % 2 == 0, cc_requests=n % 7 == 0,
                  close_ack=("at", "below")[n % 2])
        a, b = configs(**kw)
        if n % 3 == 0:
            a.evs = [50001, 50002, 50003]
        if n % 4 == 1:
            key = bytes(range(32))
            a.domain, b.domain = tss.Domain({0: key}, 9, ssi=1), tss.Domain({0: key}, 9, ssi=2)
            b.start_by = ("given", "expected")[n % 8 == 1]
        if n % 6 == 0:
            a.start_psn = 0xFFFFFFF0
        if n % 11 == 0:
            b.window = 8
        if n % 13 == 0:
            b.mpr = 0
        try:
            transfer(Pair(a, b, loss, loss / 4, loss, seed=n), ordered, tagged, late, form, both=n % 3 == 1)
        except Exception as e:
            raise AssertionError("combination %d: ordered %s, tagged %s, late %s, form %d, loss %g, %r"
                                 % (n, ordered, tagged, late, form, loss, kw)) from e
    return n


def injected():
    """Single packets, and what is answered."""
    a, b = configs()
    a.port, b.port = 40001, 40002
    p = Pair(a, b)
    path = outer.Path(40001, b.ip, 40002)
    send = lambda pk: (p.feps[0].emit(path, pk), p.step(), p.step())
    nacks = lambda: [f["code"] for f in p.got(0, "nack")]
    ses = SesRequest(NH_STD, SEND, S_REL | S_SOM | S_EOM, 1, 0, 1, 0, 15, 0, 16, 0, 0, 0).pack()
    send(Request(RUD_REQ, NH_RSP, F_SYN | F_AR, -1, 70000, 77, 0).pack() + bytes(12))
    equal("wrong next_hdr", nacks(), [0x0F])
    send(Request(RUD_REQ, NH_STD, F_AR, -1, 70000, 77, 99).pack() + ses)
    equal("unknown PDC", nacks(), [0x0F, 0x0E])
    send(Request(RUD_REQ, NH_STD, F_SYN | F_AR, -1, 70000, 77, 0).pack() + ses)
    equal("opened", len(p.feps[1].by_id), 1)
    send(Request(RUD_REQ, NH_STD, F_SYN | F_AR, -1, 90000, 77, 0).pack() + ses)
    equal("another life", nacks(), [0x0F, 0x0E, 0x15])
    send(Request(ROD_REQ, NH_STD, F_SYN | F_AR, -1, 70001, 77, 1).pack() + ses)
    equal("another mode", nacks()[3:], [0x16])
    pdc, = p.feps[1].by_id.values()
    send(Request(RUD_REQ, NH_STD, F_AR, -1, 70001, 78, pdc.my_id).pack() + ses)
    equal("another spdcid", nacks()[4:], [0x0F])
    send(Request(RUD_REQ, NH_STD, F_AR, -1, 71000, 77, pdc.my_id).pack() + ses)
    equal("out of window", nacks()[5:], [0x0B])
    send(Control(ACK_REQ, F_AR, 0, 70001, 77, pdc.my_id).pack())
    equal("never received", nacks()[6:], [0x12])
    tail = h("0102000000000001")
    send(Control(NEGOTIATION, F_AR, 0, 70001, 77, pdc.my_id, tail=tail).pack())
    equal("negotiation", (p.got(0, "ack")[-1]["next_hdr"], p.got(0, "ack")[-1]["psn"]), (NH_NONE, 70001))
    send(Control(PROBE, 0, 0x1234, 0, 77, pdc.my_id, 70000).pack())
    equal("probe", p.feps[1].stats["acks"] >= 3, True)
    equal("nothing else", len(nacks()), 7)
    # The wire is silent about what is damaged.
    before = p.feps[1].stats["received"]
    p.feps[1].receive(p.now, b"\x11" * 20, outer.Path(40002, a.ip, 40001))
    equal("CRC", (p.feps[1].stats["received"], p.feps[1].stats["dropped: CRC"]), (before, 1))
    # A lost CLOSE ACK: the second CLOSE is acknowledged again.
    for _ in (1, 2):
        send(Control(CLOSE_CMD, F_AR, 0, 70002, 77, pdc.my_id).pack())
        equal("close", (p.got(0, "ack")[-1]["psn"], pdc.state), (70002, "CLOSED"))
    send(Request(RUD_REQ, NH_STD, F_SYN | F_AR | F_RETX, -1, 70000, 77, 0).pack() + ses)
    equal("quarantine", nacks()[7:], [0x0E])


def restart():
    """A target that forgets everything: what was under way fails, what comes after goes."""
    a, b = configs()
    a.port, b.port = 40001, 40002
    p = Pair(a, b)
    p.feps[0].send(p.now, 1, b.ip, b.port, b"one")
    p.feps[1].ses.post(p.now, 1, 10)
    p.until(lambda: p.got(0, "sent"))
    p.feps[1] = Fep(b, p.now, lambda n, f: p.events[1].append((n, f)))
    p.feps[1].ses.post(p.now, 2, 10)
    p.feps[1].ses.post(p.now, 3, 10)
    p.feps[0].send(p.now, 2, b.ip, b.port, b"two")
    p.until(lambda: len(p.got(0, "sent")) == 2)
    equal("lost with its PDC", p.got(0, "sent")[1]["ok"], False)
    p.feps[0].send(p.now, 3, b.ip, b.port, b"three")
    p.until(lambda: len(p.got(0, "sent")) == 3)
    equal("by a new PDC", p.got(0, "sent")[2]["ok"], True)


def main():
    known_answers()
    print("known answers: ok")
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("UETKIT_VECTORS")
    if folder:
        print("captures: %d packets, %d sealed: ok" % captures(folder))
    else:
        print("captures: no folder given, left out")
    injected()
    restart()
    print("single packets, restart: ok")
    print("one-sided operations in memory: %d combinations: ok" % memories())
    print("pairs in memory: %d combinations: ok" % pairs())


if __name__ == "__main__":
    main()
