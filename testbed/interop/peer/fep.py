"""A fabric endpoint: which packet belongs to which PDC, and what is answered where there is none.

Follows the target's state table of UE 3.5 (SYN packets, unknown PDCIDs, mode and header mismatch,
PENDING and Start_PSN of secured PDCs in 3.5.8) and UE 3.7 (nothing in clear touches a secured
endpoint). It does no I/O: receive, pump and tick are handed the time; out holds what is to be sent.
"""
import collections
import random
from dataclasses import dataclass, field

import outer as o
import tss
from pds import NAMES, Arrival, Pdc
from ses import Dest, Flow, Ses
from wire import *


@dataclass
class Config:
    ip: str = "127.0.0.1"
    port: int = o.PORT
    evs: list = field(default_factory=list)  # source ports; empty: port
    encap: str = o.SYMMETRIC
    mtu: int = 1024
    job: int = 1
    pid: int = 0
    ri: int = 15
    initiator: int = 16
    seed: int = 1
    domain: tss.Domain = None
    start_by: str = "given"  # secured target: "given" (1-RTT) or "expected" (0-RTT) Start_PSN
    crc: bool = True
    # Target.
    ack_type: int = ACK_CC
    ack_per_packet: bool = False
    window: int = 128  # PSNs tracked
    mpr: int = 1  # as advertised
    none_next: int = 0  # next_hdr of an ACK without a response; errata of pds.md: 9 (CP_ACK) on that of a control packet
    go_back_n: bool = False  # a ROD target that keeps no packet out of order
    unexpected: str = "overflow"  # overflow, late, nomatch or disable
    too_long: str = "truncate"  # or refuse
    ack_data: int = 16  # reads of at most so many bytes are answered in the ACK, others in the return direction
    zero_read: str = "default"  # how a read of nothing is answered: by a default response, or "data"
    asked: str = "ok"  # how a NO_OP with a key is answered: as any, or as uetkit asks whether announced messages are read: "reads"
    peer_port: int = 0  # where announced messages are read; 0: where they came from
    close_ack: str = "at"  # CACK of the ACK of CLOSE: at its PSN, or below
    close_by: str = "cp"  # a target asks for the end by CLOSE_REQ, or by the flags of an ACK
    given_start: int = None  # the Start_PSN to give, instead of a random one
    late_until: str = "sent"  # how long a RESPONSE after NO_RESPONSE is sent again: "sent" or "cleared"
    lose: dict = field(default_factory=dict)  # "opcode:return code": so many ACKs with that response are lost
    deaf: int = 0  # so many CLEAR control packets are lost
    # Initiator.
    cc_requests: bool = False  # RUD_CC_REQ and ROD_CC_REQ
    keep_syn: bool = False  # resend SYN packets as SYN packets
    syn_burst: int = 16  # packets before the first answer
    ar_every: int = 8
    burst: int = 48  # packets in flight
    rto: float = 0.03
    linger: float = 0.1  # no CLOSE so soon after return data: the target may not have its ACK
    cswap_length: int = 8  # request_length of a compare-and-swap, or 32
    rto_max: float = 0.4
    reorder: float = 0.006
    give_up: float = 20.0
    close_time: float = 1.0
    quarantine: float = 4.0
    start_psn: int = None  # instead of a random one
    pdcid: int = None


class Quarantined:
    """What is remembered of a PDC that ended, so that its late packets open no other."""

    def __init__(self, pdc, until):
        self.my_id, self.start, self.newest = pdc.my_id, pdc.start, pdc.rx.newest
        self.close_psn, self.until = pdc.close_psn if pdc.target else None, until


class Fep:
    def __init__(self, cfg, now=0.0, event=None):
        self.cfg = cfg
        self.rng = random.Random(cfg.seed)
        self.me = o.packed(cfg.ip)
        self.ses = Ses(self)
        self.stats = collections.Counter()
        self.by_id, self.by_peer, self.pending, self.dead = {}, {}, {}, {}
        self.out = []  # (path, datagram)
        self.later = []  # responses that follow others
        self.on_event = event or (lambda name, fields: None)
        self.expected_psn = 1 << 16
        self.now = now
        self.ev = 0
        self.dump = None

    def event(self, kind, **fields):
        self.on_event(kind, fields)

    def count(self, what):
        """Counts a packet that was dropped."""
        self.stats["dropped: " + what] += 1

    # To the network.

    def emit(self, path, packet):
        cfg = self.cfg
        dst = o.packed(path.ip)
        if self.dump:
            self.dump(True, path, packet)
        if cfg.domain is not None:
            out = o.udp_outer(self.me, dst, path.local_port, path.port, len(packet) + cfg.domain.overhead())
            data = cfg.domain.seal(out, self.me, packet)
        elif cfg.crc:
            out = o.udp_outer(self.me, dst, path.local_port, path.port, len(packet) + 4)
            data = o.with_crc(out, packet)
        else:
            data = packet
        self.out.append((path, data))

    def request_path(self, pdc):
        evs = self.cfg.evs or [self.cfg.port]
        if pdc.path is not None and self.cfg.encap == o.SYMMETRIC:
            return o.answer(o.SYMMETRIC, pdc.path)  # a target's own packets go where the initiator's came from
        if not pdc.ordered:
            self.ev += 1  # RUD sprays, ROD keeps one
        port = evs[self.ev % len(evs)] if not pdc.ordered else evs[pdc.my_id % len(evs)]
        return o.Path(port, pdc.ip, o.PORT if self.cfg.encap == o.STANDARD else pdc.port)

    def answer_path(self, arrived):
        return o.answer(self.cfg.encap, arrived)

    def nack(self, a, flags, code, spdcid, payload=0):
        self.stats["nacks"] += 1
        self.emit(self.answer_path(a.path), Nack(flags, code, a.hdr.psn, spdcid, a.hdr.spdcid, payload).pack())

    def refuse(self, a, code, payload=0):
        """A NACK where there is no PDC to name."""
        self.nack(a, (N_M if a.ce else 0) | (N_RETX if a.hdr.flags & F_RETX else 0), code, 0, payload)

    # From the network.

    def receive(self, now, data, path, ce=False):
        """Takes one UDP payload; path says from where and to which of our ports it came."""
        self.now = now
        src = o.packed(path.ip)
        out = o.udp_outer(src, self.me, path.port, path.local_port, len(data))
        cfg = self.cfg
        if cfg.encap == o.STANDARD and path.local_port != o.PORT:
            self.count("not to port 4793")
            return
        if not data:
            self.count("empty")
            return
        if data[0] >> 3 == tss.TYPE:
            if cfg.domain is None:
                self.count("sealed, and there is no key")
                return
            try:
                body = cfg.domain.open(out, src, data)
            except tss.Refused as e:
                self.count(str(e))
                return
        elif cfg.domain is not None:
            self.count("in clear")
            return
        else:
            body = o.without_crc(out, data) if cfg.crc else data
            if body is None:
                self.count("CRC")
                return
        if self.dump:
            self.dump(False, path, body)
        self.stats["received"] += 1
        try:
            hdr, rest = parse_pds(body)
            self.dispatch(now, hdr, rest, path, ce, 8 + len(data) + 40)
        except Malformed as e:
            self.count(str(e))
        while self.later:
            pdc, psns, resp = self.later.pop(0)
            pdc.late(now, psns, resp)

    def dispatch(self, now, hdr, rest, path, ce, size):
        if isinstance(hdr, (Ack, Nack)):
            if isinstance(hdr, Nack):
                self.event("nack", code=hdr.code, name=NAMES.get(hdr.code, "?"), psn=hdr.psn, spdcid=hdr.spdcid,
                           dpdcid=hdr.dpdcid, payload=hdr.payload)
            else:
                resp = parse_ses_response(NH_RSP, rest)[0] if hdr.next_hdr == NH_RSP else None
                self.event("ack", next_hdr=hdr.next_hdr, cack=hdr.cack, psn=hdr.psn, dpdcid=hdr.dpdcid,
                           spdcid=hdr.spdcid, port=path.local_port, ev_port=path.port, flags=hdr.flags,
                           opaque=hdr.off & 0xFFFF, rc=resp.rc if resp else None)
            pdc = self.by_id.get(hdr.dpdcid)
            if pdc is None or pdc.ip != path.ip:
                self.count("answer to no PDC")
                return
            if isinstance(hdr, Ack):
                pdc.on_ack(now, hdr, rest)
            else:
                pdc.on_nack(now, hdr)
            return
        a = Arrival(hdr, rest, path, ce, size)
        if a.ctl == CLEAR_CMD and self.cfg.deaf > 0:
            self.cfg.deaf -= 1
            return
        if isinstance(hdr, Request):
            if hdr.next_hdr in (NH_SMALL, NH_MEDIUM, NH_STD):
                parse_ses_request(hdr.next_hdr, rest)  # too short: dropped here
            elif hdr.next_hdr in (NH_RSP_DATA, NH_RSP_DATA_SMALL):
                parse_ses_response(hdr.next_hdr, rest)
            if hdr.syn:
                self.open(now, a)
                return
        elif hdr.syn and hdr.ctl in TAKES_PSN:
            self.open(now, a)
            return
        pdc = self.by_id.get(hdr.dpdcid)
        if pdc is None or pdc.ip != path.ip:
            dead = self.dead.get((path.ip, hdr.spdcid))
            if a.ctl == CLOSE_CMD and dead and dead.my_id == hdr.dpdcid and dead.close_psn == hdr.psn:
                self.close_again(a, dead)
            else:
                self.refuse(a, 0x0E)
            return
        if pdc.peer_id and hdr.spdcid != pdc.peer_id:
            self.refuse(a, 0x0F)
        elif isinstance(hdr, Request) and hdr.next_hdr not in \
                ((NH_SMALL, NH_MEDIUM, NH_STD) if pdc.target else (NH_RSP_DATA, NH_RSP_DATA_SMALL)):
            pdc.nack(a, 0x0F)
        elif isinstance(hdr, Request) and hdr.ordered != pdc.ordered:
            pdc.nack(a, 0x16)
        elif isinstance(hdr, Request) or hdr.ctl in TAKES_PSN:
            pdc.arrive(now, a)
        else:
            pdc.on_control(now, a)

    def close_again(self, a, dead):
        ack = Ack(ACK, NH_NONE, A_RETX if a.hdr.flags & F_RETX else 0, 0, a.hdr.psn, dead.my_id, a.hdr.spdcid)
        self.emit(self.answer_path(a.path), ack.pack())

    def open(self, now, a):
        """A SYN packet: of a PDC that there is, of one that there was, or of a new one."""
        h, key = a.hdr, (a.path.ip, a.hdr.spdcid)
        pdc = self.by_peer.get(key)
        if pdc is not None:
            if h.start != pdc.start:
                self.refuse(a, 0x15)
            elif h.ordered != pdc.ordered and a.ctl is None:
                pdc.nack(a, 0x16)
            else:
                pdc.arrive(now, a)
            return
        dead = self.dead.get(key)
        if dead is not None and sub(h.psn, dead.start) >= 0 and sub(h.psn, dead.newest) <= 0:
            if a.ctl == CLOSE_CMD and h.psn == dead.close_psn:
                self.close_again(a, dead)
            else:
                self.refuse(a, 0x0E)
            return
        if a.ctl is None and h.next_hdr not in (NH_SMALL, NH_MEDIUM, NH_STD):
            self.refuse(a, 0x0F)
            return
        my_id = None
        if self.cfg.domain is not None:
            my_id = self.secured_start(now, a, key)
            if my_id is None:
                return
        pdc = Pdc(self, True, h.ordered, a.path.ip, a.path.port, my_id or self.new_id(), h.spdcid, h.start, now, a.path)
        self.by_id[pdc.my_id] = self.by_peer[key] = pdc
        pdc.flow = None
        self.event("opened by peer", ordered=pdc.ordered, start=pdc.start)
        pdc.arrive(now, a)

    def secured_start(self, now, a, key):
        """A secured target rules the Start_PSN: the id of the PDC to open, or None after NACK 17."""
        waiting = self.pending.get(key)
        if waiting is not None and waiting[0] == a.hdr.start:
            del self.pending[key]
            return waiting[1]
        if waiting is None:
            if self.cfg.start_by == "expected":
                if sub(a.hdr.start, self.expected_psn) >= 0:
                    return self.new_id()
                start = self.expected_psn
            else:
                start = self.cfg.given_start
                if start is None:
                    start = self.rng.randrange(1 << 16, 1 << 31)
            waiting = self.pending[key] = (start, self.new_id(), now)
        self.refuse(a, 0x17, waiting[0])
        return None

    def new_id(self):
        used = {d.my_id for d in self.dead.values()} | {p[1] for p in self.pending.values()}
        while True:
            i = self.rng.randrange(1, 1 << 16)
            if i not in self.by_id and i not in used:
                return i

    # PDCs of our own.

    def connect(self, now, f):
        cfg = self.cfg
        start = cfg.start_psn if cfg.start_psn is not None else self.rng.randrange(1 << 16, 1 << 31)
        my_id = cfg.pdcid if cfg.pdcid is not None else self.new_id()
        cfg.start_psn = cfg.pdcid = None  # the next ones are others
        f.pdc = Pdc(self, False, f.ordered, f.ip, f.port, my_id, 0, start, now)
        f.pdc.flow = f
        self.by_id[my_id] = f.pdc
        self.event("opened", ordered=f.ordered, start=start, pdcid=my_id)
        return f.pdc

    def pdc_to(self, now, ip, port, ordered):
        """The PDC to a peer, opened if there is none."""
        f = self.ses.flows.setdefault((ip, port, ordered), Flow(ip, port, ordered))
        return f.pdc if f.pdc is not None and f.pdc.usable else self.connect(now, f)

    def free(self, now, pdc, why):
        """A PDC ends; what comes late for it is recognized for a while."""
        if pdc.state == "CLOSED":
            return
        pdc.state = "CLOSED"
        self.by_id.pop(pdc.my_id, None)
        if pdc.target:
            self.by_peer.pop((pdc.ip, pdc.peer_id), None)
            self.dead[(pdc.ip, pdc.peer_id)] = Quarantined(pdc, now + self.cfg.quarantine)
            if self.cfg.domain is not None and sub(pdc.start, self.expected_psn) >= 0:
                self.expected_psn = add(pdc.start, 1)
            for key in [k for k in self.ses.inbound if k[0] is pdc]:
                m = self.ses.inbound.pop(key)
                if m.posted is not None:
                    self.event("received", ctx=m.posted.ctx, ok=False, why=why)
        elif pdc.flow is not None and pdc.flow.pdc is pdc:
            pdc.flow.pdc = None
        pdc.returns.clear()
        self.event("pdc closed", why=why, target=pdc.target)

    def pump(self, now):
        """Lets every PDC send what it may, and opens PDCs for messages that have none."""
        self.now = now
        for f in list(self.ses.flows.values()):
            if f.waiting() and (f.pdc is None or not f.pdc.usable) and now >= f.not_before:
                self.connect(now, f)
        for pdc in list(self.by_id.values()):
            pdc.pump(now)

    def tick(self, now):
        """Everything that is due by time."""
        self.now = now
        for pdc in list(self.by_id.values()):
            pdc.tick(now)
        for key, p in list(self.pending.items()):
            if now - p[2] > 1.0:
                del self.pending[key]
        for key, d in list(self.dead.items()):
            if d.until < now:
                del self.dead[key]

    def busy(self):
        """Whether something is outstanding, so that time matters."""
        return bool(self.later) or any(f.waiting() or f.inflight for f in self.ses.flows.values()) or \
            any(p.tx.out or p.tx.owed or p.tx.awaiting or p.rx.late or p.returns or p.closing or p.controls or p.close_since for p in self.by_id.values())

    def send(self, now, ctx, ip, port, payload, pid=0, ri=15, job=None, relative=True, **how):
        dest = Dest(ip, o.PORT if self.cfg.encap == o.STANDARD else port, pid, ri, self.cfg.job if job is None else job,
                    relative)
        self.ses.send(now, ctx, dest, payload, **how)

    def announce(self, now, ctx, ip, port, payload, eager, pid=0, ri=15, job=None, relative=True, **how):
        dest = Dest(ip, o.PORT if self.cfg.encap == o.STANDARD else port, pid, ri, self.cfg.job if job is None else job,
                    relative)
        self.ses.announce(now, ctx, dest, payload, eager, **how)

    def remote(self, now, ctx, ip, port, opcode, key, at, pid=0, ri=15, job=None, relative=True, **how):
        dest = Dest(ip, o.PORT if self.cfg.encap == o.STANDARD else port, pid, ri, self.cfg.job if job is None else job,
                    relative)
        self.ses.remote(now, ctx, dest, opcode, key, at, **how)
