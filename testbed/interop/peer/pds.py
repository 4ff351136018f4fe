"""Packet delivery contexts: numbering, acknowledging, sending again, clearing, closing.

Follows UE 3.5: 3.5.8 (establishment), 3.5.11 (fields of ACKs, SACK in .14), 3.5.12 (requests in
and out of the window, duplicates in .5), 3.5.16 (control packets), 3.5.20 (reliability: guaranteed
responses, CLEAR, windows), and the state tables of initiator and target. A Pdc does no I/O: it is
handed the time and packets, and hands packets to its Fep.
"""
import collections
import struct

from wire import *

NAMES = {
    0x01: "TRIMMED", 0x02: "TRIMMED_LASTHOP", 0x03: "TRIMMED_ACK", 0x04: "NO_PDC_AVAIL", 0x05: "NO_CCC_AVAIL",
    0x06: "NO_BITMAP", 0x07: "NO_PKT_BUFFER", 0x08: "NO_GTD_DEL_AVAIL", 0x09: "NO_SES_MSG_AVAIL",
    0x0A: "NO_RESOURCE", 0x0B: "PSN_OOR_WINDOW", 0x0D: "ROD_OOO", 0x0E: "INV_DPDCID", 0x0F: "PDC_HDR_MISMATCH",
    0x10: "CLOSING", 0x11: "CLOSING_IN_ERR", 0x12: "PKT_NOT_RCVD", 0x13: "GTD_RESP_UNAVAIL",
    0x14: "ACK_WITH_DATA", 0x15: "INVALID_SYN", 0x16: "PDC_MODE_MISMATCH", 0x17: "NEW_START_PSN",
    0x18: "RCVD_SES_PROCG", 0x19: "UNEXP_EVENT", 0x1A: "RCVR_INFER_LOSS",
}
AT_ONCE = (0x01, 0x02, 0x03, 0x12, 0x14, 0x1A, 0xFD, 0xFE)
LATER = (0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B)
FATAL = (0x0E, 0x0F, 0x10, 0x11, 0x13, 0x15, 0x16, 0x19, 0xFF)
# A PDC that is refused with one of these before any ACK has done nothing at the target.
REFUSED = (0x0E, 0x0F, 0x15, 0x16)

RANGE = 128  # PSNs that a peer may track before it has said its MPR
SYN_PACKETS = 4096  # packets that may be sent before the PDC is known to be established


class Arrival:
    """A request or control packet that came: header, what is behind it, how it came, its size."""
    __slots__ = ("hdr", "body", "path", "ce", "size")

    def __init__(self, hdr, body, path, ce, size):
        self.hdr, self.body, self.path, self.ce, self.size = hdr, body, path, ce, size

    @property
    def ctl(self):
        return self.hdr.ctl if isinstance(self.hdr, Control) else None


class Sent:
    """A packet with a PSN that is not acknowledged yet."""
    __slots__ = ("psn", "ctl", "next_hdr", "body", "msg", "ar", "syn", "last", "tries", "due", "arrived", "tail")
    # msg is None for control packets and return data

    def __init__(self, psn, next_hdr=NH_NONE, body=b"", msg=None, ar=False, ctl=None, tail=b""):
        self.psn, self.next_hdr, self.body, self.msg, self.ar = psn, next_hdr, body, msg, ar
        self.ctl, self.tail = ctl, tail
        self.syn, self.last, self.tries, self.due, self.arrived = False, 0.0, 0, None, False


class Sender:
    """The source's half of one direction."""

    def __init__(self, start):
        self.next, self.left, self.cack = start, start, add(start, -1)
        self.out = {}  # PSN: Sent, in order of PSN
        self.range, self.range_at = RANGE, None
        self.owed = []  # PSNs whose response the target keeps until it is cleared
        self.clear_due, self.clear_at, self.clear_tries = False, 0.0, 0
        self.awaiting = {}  # PSN: message that was answered NO_RESPONSE
        self.acked_sent = 0.0  # when the newest packet was sent that was acknowledged
        self.since_ar = 0

    def advance(self):
        while self.left != self.next and self.left not in self.out:
            self.left = add(self.left, 1)


class Slot:
    """A PSN that was received and may not be forgotten yet."""
    __slots__ = ("item", "resp", "gtd", "working", "ctl")

    def __init__(self):
        self.item, self.resp, self.gtd, self.working, self.ctl = None, None, False, True, False


class Late:
    """A packet that was answered NO_RESPONSE, and the RESPONSE that follows once it is known (final).

    That is sent again: until the initiator clears it (late_until "cleared"), or ten times, because the
    CLEAR may be of other responses, as for CLEAR a packet that was answered NO_RESPONSE is an
    acknowledged one ("sent"). It is kept even then: who asks by ACK_REQ finds it.
    """
    __slots__ = ("resp", "path", "final", "cleared", "first", "last", "tries")
    MOST = 4096

    def __init__(self, resp, path, now):
        self.resp, self.path, self.final, self.cleared = resp, path, False, False
        self.first, self.last, self.tries = now, now, 0


class Receiver:
    """The destination's half of one direction (UE 3.5.20)."""

    def __init__(self, start, size):
        self.base, self.release, self.size = start, start, size
        self.clear, self.newest = add(start, -1), add(start, -1)
        self.slots, self.late = {}, {}
        self.bytes, self.nominal = 0, 0
        self.ar_psn, self.gap, self.sack_track = None, None, add(start, -1)

    @property
    def cack(self):
        return add(self.base, -1)

    def advance(self):
        """CACK moves over what is received and either not guaranteed or cleared."""
        while True:
            s = self.slots.get(self.base)
            if s is None or s.working or s.item is not None or (s.gtd and sub(self.base, self.clear) > 0):
                return
            del self.slots[self.base]
            self.base = add(self.base, 1)

    def sack(self, base):
        bits = 0
        for i in range(64):
            if add(base, i) in self.slots or sub(add(base, i), self.base) < 0:
                bits |= 1 << i
        return bits

    def ooo(self):
        """PSNs above the first hole."""
        psn = self.base
        while psn in self.slots:
            psn = add(psn, 1)
        return len(self.slots) - sub(psn, self.base)


class Pdc:
    """A packet delivery context, at the initiator or at the target."""

    def __init__(self, fep, target, ordered, ip, port, my_id, peer_id, start, now, path=None):
        self.fep, self.cfg, self.target, self.ordered = fep, fep.cfg, target, ordered
        self.ip, self.port, self.path = ip, port, path
        self.my_id, self.peer_id, self.start = my_id, peer_id, start
        self.tx, self.rx = Sender(start), Receiver(start, fep.cfg.window)
        self.state = "ESTABLISHED" if target else "CREATING"
        self.closing, self.close_asked, self.close_since, self.close_psn = False, False, None, None
        self.controls = []  # control packets that wait for a PSN
        self.msg = None  # the message whose packets leave now
        self.msgs = {}  # message id: message that is not complete
        self.next_msg_id = 1
        self.returns = collections.deque()  # at a target: read data that waits, (next_hdr, body, last of its message, what hears of its ACK or None)
        self.returned = -1e9  # at an initiator: when the last of it came
        self.heard = self.used = now
        self.renumbered = 0
        self.probe_at, self.probe_opaque = 0.0, 0

    @property
    def usable(self):
        return not self.target and not self.closing and self.state in ("CREATING", "ESTABLISHED")

    def msg_id(self):
        while True:
            i, self.next_msg_id = self.next_msg_id, self.next_msg_id % 0xFFFF + 1
            if i not in self.msgs:
                return i

    # Sending.

    def request_path(self):
        """Where a packet that answers nothing goes, and from which port (entropy value)."""
        return self.fep.request_path(self)

    def clear_psn(self):
        return add(self.tx.left, -1)

    def transmit(self, now, s, again):
        """Puts a packet with a PSN on the wire, encoded anew each time."""
        flags = (F_AR if s.ar or again else 0) | (F_RETX if again else 0)
        if not self.peer_id or (again and s.syn and self.cfg.keep_syn):
            flags |= F_SYN
            s.syn = True
            dpdcid = sub(s.psn, self.start) & 0xFFF
        else:
            dpdcid = self.peer_id
        if s.ctl is not None:
            if self.ordered and s.ctl in (NOOP, NEGOTIATION):
                flags |= F_ISROD
            b = Control(s.ctl, flags, 0, s.psn, self.my_id, dpdcid, tail=s.tail).pack()
        else:
            kind = (ROD_CC_REQ if self.ordered else RUD_CC_REQ) if self.cfg.cc_requests else \
                (ROD_REQ if self.ordered else RUD_REQ)
            clear = sub(self.clear_psn(), s.psn)
            b = Request(kind, s.next_hdr, flags, clear, s.psn, self.my_id, dpdcid).pack() + s.body
            self.tx.clear_due = False  # this packet says it
        s.last, s.due = now, None
        if again:
            s.tries += 1
            self.fep.stats["resent"] += 1
        self.fep.stats["sent"] += 1
        self.fep.emit(self.request_path(), b)

    def control(self, ctl, psn=0, payload=0, opaque=0, ar=False):
        """Sends a control packet that takes no PSN."""
        self.fep.emit(self.request_path(), Control(ctl, F_AR if ar else 0, opaque, psn, self.my_id, self.peer_id,
                                                   payload).pack())

    def in_window(self, psn):
        return sub(psn, self.tx.cack) <= (self.tx.range or RANGE)

    def pump(self, now):
        """Sends what may be sent: first again what was lost, then new packets, then a CLEAR that is due."""
        tx = self.tx
        for s in list(tx.out.values()):
            if s.due is not None and s.due <= now and self.in_window(s.psn):
                self.transmit(now, s, True)
        while self.state in ("CREATING", "ESTABLISHED") and len(tx.out) < self.cfg.burst and self.in_window(tx.next):
            if not self.peer_id and sub(tx.next, self.start) >= min(SYN_PACKETS, self.cfg.syn_burst):
                break
            s = self.next_packet(now)
            if s is None:
                break
            tx.out[s.psn] = s
            tx.next = add(tx.next, 1)
            self.used = now
            self.transmit(now, s, False)
        if tx.clear_due and self.peer_id:
            tx.clear_due, tx.clear_at = False, now
            self.control(CLEAR_CMD, payload=self.clear_psn())

    def next_packet(self, now):
        tx = self.tx
        if self.controls:
            ctl, tail = self.controls.pop(0)
            if ctl == CLOSE_CMD:
                self.state, self.close_psn = "CLOSE_ACK_WAIT", tx.next
            return Sent(tx.next, ctl=ctl, ar=True, tail=tail)
        if self.returns:
            next_hdr, body, last, served = self.returns.popleft()
            tx.since_ar += 1
            ar = last or tx.since_ar >= self.cfg.ar_every or len(tx.out) + 1 >= self.cfg.burst
            if ar:
                tx.since_ar = 0
            return Sent(tx.next, next_hdr, body, served, ar)
        if self.msg is None:
            self.msg = self.fep.ses.next_message(now, self)
        if self.msg is None:
            return None
        next_hdr, body, last = self.msg.segment()
        tx.since_ar += 1
        ar = last or tx.since_ar >= self.cfg.ar_every or len(tx.out) + 1 >= self.cfg.burst
        if ar:
            tx.since_ar = 0
        s = Sent(tx.next, next_hdr, body, self.msg, ar)
        self.msg.psn = tx.next
        if last:
            self.msg = None
        return s

    def rto(self, tries):
        return min(self.cfg.rto * (1 << min(tries, 6)), self.cfg.rto_max)

    def tick(self, now):
        """What is due by time."""
        tx = self.tx
        for s in list(tx.out.values()):
            if s.due is None and now - s.last >= self.rto(s.tries):
                if s.arrived:  # it is there, its response is not: ask for that
                    s.last, s.tries = now, s.tries + 1
                    self.control(ACK_REQ, psn=s.psn, ar=True)
                elif self.in_window(s.psn):
                    s.due = now
        if tx.out and now - self.heard > self.cfg.give_up:
            self.fail(now, "gave up", None)
            return
        if tx.owed and now - tx.clear_at > self.rto(tx.clear_tries):
            # A lost CLEAR would hold the window for ever: nothing answers it.
            if tx.clear_tries < 8 or tx.out or not self.in_window(tx.next):
                tx.clear_tries, tx.clear_at = tx.clear_tries + 1, now
                self.control(CLEAR_CMD, payload=self.clear_psn())
        if not self.in_window(tx.next) and not tx.out and self.peer_id and now - self.probe_at > self.cfg.rto:
            # Everything is acknowledged one by one and CACK is not known to have moved: ask.
            self.probe_at, self.probe_opaque = now, (self.probe_opaque + 1) & 0xFFFF
            self.control(PROBE, payload=add(tx.cack, 1), opaque=self.probe_opaque)
        if tx.awaiting and not tx.out and now - self.probe_at > 10 * self.cfg.rto:
            self.probe_at = now
            for psn in list(tx.awaiting)[:16]:
                self.control(ACK_REQ, psn=psn, ar=True)
        for psn, l in list(self.rx.late.items()):
            if l.final and not l.cleared and l.tries < 10 and now - l.last >= self.rto(l.tries):
                l.last, l.tries = now, l.tries + 1
                self.ack(l.path, psn, l.resp, 0, True)
        self.fep.ses.expire(now, self)
        if not self.target and self.closing and self.state == "ESTABLISHED" and not tx.out and not self.msg \
                and not self.controls and not self.fep.ses.holds(self) and now - self.returned >= self.cfg.linger:
            self.controls.append((CLOSE_CMD, b""))
        if self.close_since is not None and now - self.close_since > self.cfg.close_time:
            self.fep.free(now, self, "no close came")

    def send_control(self, ctl, tail=b""):
        """Queues a control packet that takes a PSN."""
        self.controls.append((ctl, tail))

    def close(self, now):
        """Initiator: an orderly end. Target: asks for it."""
        if not self.target:
            self.closing = True
        elif not self.close_asked:
            self.close_asked, self.close_since = True, now
            if self.cfg.close_by == "cp":
                self.send_control(CLOSE_REQ)

    # ACKs and NACKs.

    def on_ack(self, now, a, body):
        tx = self.tx
        newest = add(tx.next, -1)
        if sub(a.cack, newest) > 0 or (not a.flags & A_P and sub(a.psn, newest) > 0):
            self.fep.count("ack of what was never sent")
            return
        if self.state == "CREATING":
            self.peer_id, self.state = a.spdcid, "ESTABLISHED"
        elif a.spdcid != self.peer_id:
            self.fep.count("ack of another PDC")
            return
        self.heard = now
        resp = None
        if a.next_hdr in (NH_RSP, NH_RSP_DATA, NH_RSP_DATA_SMALL):
            resp, data = parse_ses_response(a.next_hdr, body)
            resp.data = bytes(data)
        if not a.flags & A_P:
            s = tx.out.get(a.psn)
            if s is not None:
                self.complete(now, s, resp)
            elif resp is not None and resp.opcode == RESPONSE:
                m = self.awaits(a.psn, resp.msg_id)
                if m is not None:
                    self.fep.ses.answered(now, self, m, resp)
            if self.state == "CLOSED":
                return
        if sub(a.cack, tx.cack) > 0:
            for psn, s in list(tx.out.items()):
                if sub(psn, a.cack) > 0:
                    break
                self.complete(now, s, None)
                if self.state == "CLOSED":
                    return
            tx.cack = a.cack
            tx.owed = [p for p in tx.owed if sub(p, a.cack) > 0]
            tx.clear_tries = 0
        if a.kind != ACK:
            base = add(a.cack, a.sack_off)
            bits = a.sack
            while bits:
                low = bits & -bits
                s = tx.out.get(add(base, low.bit_length() - 1))
                bits ^= low
                if s is not None and not s.arrived:
                    s.arrived, s.due = True, None
                    tx.acked_sent = max(tx.acked_sent, s.last)
            # Of two ACKs the one with the newer CACK has the newer MPR.
            if tx.range_at is None or sub(a.cack, tx.range_at) > 0:
                tx.range, tx.range_at = a.mpr * 128, a.cack
        if not a.flags & A_P and a.req == REQ_CLEAR:
            if a.psn not in tx.owed and sub(a.psn, tx.cack) > 0:
                tx.owed.append(a.psn)
            tx.clear_due = True
        elif a.req == REQ_CLOSE and not self.target:
            self.closing = True
        # What was sent well before a packet that arrived is lost.
        for s in tx.out.values():
            if not s.arrived and s.due is None and s.last + self.cfg.reorder < tx.acked_sent:
                s.due = now

    def awaits(self, psn, msg_id):
        """The message that a late RESPONSE is for: by its packet, else by its message id."""
        m = self.tx.awaiting.get(psn)
        if m is None and msg_id:
            m = next((w for w in self.tx.awaiting.values() if w.msg_id == msg_id), None)
        return m

    def complete(self, now, s, resp):
        """A packet is acknowledged; resp is None where only CACK or a PDS-only ACK says so."""
        tx = self.tx
        del tx.out[s.psn]
        tx.advance()
        if s.tries == 0:
            tx.acked_sent = max(tx.acked_sent, s.last)
        if s.ctl is not None:
            self.fep.event("control acknowledged", ctl=s.ctl)
            if s.ctl == CLOSE_CMD:
                self.fep.free(now, self, "closed")
            return
        if s.msg is None:
            return
        if resp is not None and resp.opcode == NO_RESPONSE:
            tx.awaiting[s.psn] = s.msg
        self.fep.ses.packet_done(now, self, s.msg, s.psn, resp)

    def on_nack(self, now, n):
        tx = self.tx
        s = tx.out.get(n.psn)
        if s is None:
            self.fep.count("nack of nothing outstanding")
            return
        if n.code == 0x17:
            if self.state == "CREATING" and self.renumbered < 8:
                self.renumber(now, n.payload)
            return
        self.heard = now
        if n.code in AT_ONCE:
            s.due, s.arrived = now, False
        elif n.code in LATER:
            s.due = now + min(0.001 * (1 << min(s.tries, 7)), 0.1)
            if n.code == 0x08 and self.peer_id:
                tx.clear_due = True
        elif n.code == 0x0D:
            for psn, o in tx.out.items():
                if sub(psn, n.payload) >= 0:
                    o.due, o.arrived = now, False
        elif n.code in FATAL:
            if self.state == "CLOSE_ACK_WAIT" and n.code == 0x0E:
                self.fep.free(now, self, "closed")
            else:
                self.fail(now, NAMES.get(n.code, "?"), n.code)

    def renumber(self, now, start):
        """A secured target gives the Start_PSN (UE 3.5.8): every PSN moves by the same."""
        delta = sub(start, self.start)
        if delta == 0:
            return
        tx = self.tx
        self.renumbered += 1
        self.heard = now
        moved = {}
        for s in tx.out.values():
            s.psn, s.due, s.tries = add(s.psn, delta), now, 0
            if s.msg is not None:
                s.msg.psn = s.psn  # of a message of one packet, which is all that asks
            moved[s.psn] = s
        tx.out = moved
        for name in ("next", "left", "cack"):
            setattr(tx, name, add(getattr(tx, name), delta))
        self.start, self.rx = start, Receiver(start, self.cfg.window)

    def fail(self, now, why, code):
        """The PDC is lost. Messages that certainly did nothing go by another one, the others fail."""
        fresh = (self.state == "CREATING" and code in REFUSED) or code == 0x10
        self.fep.free(now, self, why)
        self.fep.ses.pdc_lost(now, self, why, code, fresh)

    # Requests and control packets.

    def nack(self, a, code, payload=0):
        flags = (N_M if a.ce else 0) | (N_RETX if a.hdr.flags & F_RETX else 0)
        self.fep.nack(a, flags, code, self.my_id, payload)

    def ack(self, path, psn, resp, flags, gtd, probe=None, sack_base=None):
        """Sends an ACK that names psn; resp is its SES response, None where there is none."""
        rx, cfg = self.rx, self.cfg
        cack = rx.cack
        req = REQ_CLEAR if gtd else REQ_CLOSE if self.close_asked and cfg.close_by == "ack" else REQ_NONE
        kind = ACK_CC if probe is not None and cfg.ack_type == ACK else cfg.ack_type
        a = Ack(kind, cfg.none_next if resp is None else resp.form, flags | req << 1, sub(psn, cack), cack, self.my_id,
                self.peer_id, mpr=cfg.mpr)
        if probe is not None:
            a.flags, a.off = a.flags | A_P, probe
        if kind != ACK:
            if sack_base is None:
                if sub(cack, rx.sack_track) > 0:
                    rx.sack_track = cack
                sack_base = rx.sack_track
                if sub(rx.newest, add(rx.sack_track, 63)) > 0:  # the next ACK shows what is above
                    rx.sack_track = add(rx.sack_track, 64)
            a.sack_off, a.sack = sub(sack_base, cack), rx.sack(sack_base)
            rcvd = (rx.nominal + 255 >> 8) & 0xFFFFFF
            # service time not given, no penalty, bytes received, packets above the first hole
            a.cc_state = struct.pack("!HIH", 0, rcvd, min(rx.ooo(), 0xFFFE))
        self.fep.stats["acks"] += 1
        if resp is not None and cfg.lose.get("%d:%d" % (resp.opcode, resp.rc), 0) > 0:
            cfg.lose["%d:%d" % (resp.opcode, resp.rc)] -= 1
            return
        self.fep.emit(self.fep.answer_path(path), a.pack() + (resp.pack() + resp.data if resp is not None else b""))

    def ack_flags(self, a):
        return (A_M if a.ce else 0) | (A_RETX if a.hdr.flags & F_RETX else 0)

    def again(self, a):
        """Answers a packet that was received before, or a question about it."""
        psn, rx = a.hdr.psn, self.rx
        slot = rx.slots.get(psn)
        control = slot.ctl if slot is not None and a.ctl == ACK_REQ else a.ctl not in (None, ACK_REQ)
        if psn in rx.late:
            l = rx.late[psn]
            self.ack(a.path, psn, l.resp, self.ack_flags(a), l.final)
        elif slot is not None and (slot.working or slot.item is not None):
            self.nack(a, 0x18)
        elif control:
            self.ack(a.path, psn, None, self.ack_flags(a), False)
        elif slot is not None and slot.resp is not None:
            self.ack(a.path, psn, slot.resp, self.ack_flags(a), slot.gtd)
        else:
            self.ack(a.path, psn, self.fep.ses.default(a), self.ack_flags(a), False)

    def cleared(self, now, psn, explicit):
        """The initiator has finished with all responses up to psn."""
        rx = self.rx
        if sub(psn, rx.newest) > 0:
            psn = rx.newest
        if sub(psn, rx.clear) > 0:
            rx.clear = psn
        for p, l in rx.late.items() if self.cfg.late_until == "cleared" else ():
            if l.final and sub(p, psn) <= 0 and (explicit or now - l.first > 0.02):
                l.cleared = True
        rx.advance()

    def arrive(self, now, a):
        """A request, or a control packet that takes a PSN."""
        rx, h, psn = self.rx, a.hdr, a.hdr.psn
        self.heard = self.used = now
        if not self.peer_id:
            self.peer_id = h.spdcid
            if self.state == "CREATING":
                self.state = "ESTABLISHED"
        d = sub(psn, rx.base)
        if d < -rx.size or d >= rx.size:
            self.fep.stats["out of window"] += 1
            self.nack(a, 0x0B)
            return
        if d < 0 or psn in rx.slots:
            self.fep.stats["duplicates"] += 1
            self.again(a)
            return
        if self.ordered and self.cfg.go_back_n and psn != rx.release:
            if rx.gap != rx.release:  # one NACK for each gap
                rx.gap = rx.release
                self.nack(a, 0x0D, rx.release)
            return
        if a.ctl == CLOSE_CMD and any(add(rx.base, i) not in rx.slots for i in range(d)):
            self.fep.count("closed before everything was acknowledged")
            return
        slot = rx.slots[psn] = Slot()
        if sub(psn, rx.newest) > 0:
            rx.newest = psn
        if h.flags & F_AR and (rx.ar_psn is None or sub(psn, rx.ar_psn) > 0):
            rx.ar_psn = psn
        if a.ctl is None:
            rx.nominal += a.size
            self.cleared(now, add(psn, h.clear_off), False)
        if self.ordered and psn != rx.release:
            slot.item = a
            return
        if not self.deliver(now, a, slot):
            return
        while self.ordered:
            rx.release = add(rx.release, 1)
            nxt = rx.slots.get(rx.release)
            if nxt is None or nxt.item is None or self.state == "CLOSED":
                break
            item, nxt.item = nxt.item, None
            if not self.deliver(now, item, nxt):
                break

    def deliver(self, now, a, slot):
        """Hands one packet to SES, once, and acknowledges it when it is time. False: it was refused."""
        rx, h, psn = self.rx, a.hdr, a.hdr.psn
        hole = rx.base
        if a.ctl is not None:
            slot.working, slot.ctl = False, True
            self.fep.event("control", ctl=a.ctl, tail=h.tail.hex())
            if a.ctl == CLOSE_CMD:
                if self.returns or any(s.ctl is None for s in self.tx.out.values()):  # return PSNs outstanding: the end is in error
                    self.nack(a, 0x11)
                    self.fep.free(now, self, "closed with return data outstanding")
                else:
                    self.closed_by_peer(now, a)
                return False
            rx.advance()
            self.ack(a.path, psn, None, self.ack_flags(a), False)
            if a.ctl == CLOSE_REQ and not self.target:
                self.closing = True
            return True
        if self.target:
            resp, gtd, code = self.fep.ses.on_request(now, self, a)
        else:
            self.returned = now
            resp, gtd, code = self.fep.ses.on_data(now, self, a)
            if self.state == "CLOSED":
                return False
        if code:
            del rx.slots[psn]
            self.nack(a, code)
            return False
        slot.working, slot.resp, slot.gtd = False, resp if gtd else None, gtd
        if resp.opcode == NO_RESPONSE:
            rx.late.setdefault(psn, Late(resp, a.path, now))
            if len(rx.late) > Late.MOST:
                del rx.late[next(iter(rx.late))]
        rx.advance()
        rx.bytes += max(a.size, 1024)
        if (self.cfg.ack_per_packet or h.flags & (F_AR | F_SYN | F_RETX) or gtd or resp.opcode != DEFAULT_RESPONSE or a.ce
                or rx.bytes >= 16384 or (rx.ar_psn is not None and psn == hole and sub(rx.cack, rx.ar_psn) >= 0
                                         and sub(rx.ar_psn, psn) > 0)):
            rx.bytes = 0
            self.ack(a.path, psn, resp, self.ack_flags(a), gtd)
        return True

    def late(self, now, psns, resp):
        """The RESPONSE of a message whose packets psns were answered NO_RESPONSE.

        It is sent, and sent again, as that of the last one; who asks after another gets it too.
        """
        if self.state == "CLOSED":
            return
        psn = psns[-1]
        for p in psns[:-1]:
            if p in self.rx.late:
                self.rx.late[p].resp = resp
        l = self.rx.late.get(psn)
        if l is None:
            return
        l.resp, l.final, l.first, l.last, l.tries = resp, True, now, now, 0
        self.ack(l.path, psn, resp, 0, True)

    def closed_by_peer(self, now, a):
        """CLOSE clears everything; its ACK has no SES header."""
        rx = self.rx
        rx.clear = rx.newest
        for s in rx.slots.values():
            s.gtd = False
        rx.advance()
        if self.cfg.close_ack == "below":  # as if CLOSE had no place in CACK
            rx.base = a.hdr.psn
        self.ack(a.path, a.hdr.psn, None, self.ack_flags(a), False)
        self.close_psn = a.hdr.psn
        self.fep.free(now, self, "closed by peer")

    def on_control(self, now, a):
        """A control packet that takes no PSN."""
        h, rx = a.hdr, self.rx
        self.heard = now
        if h.ctl == CLEAR_CMD:
            self.cleared(now, h.payload, True)
        elif h.ctl == CLEAR_REQ:
            self.control(CLEAR_CMD, payload=self.clear_psn())
        elif h.ctl == ACK_REQ:
            d = sub(h.psn, rx.base)
            slot = rx.slots.get(h.psn)
            if h.psn in rx.late or slot is not None or -rx.size <= d < 0:
                self.again(a)
            else:
                self.nack(a, 0x12)
        elif h.ctl == PROBE:
            self.ack(a.path, rx.cack, None, 0, False, probe=h.opaque, sack_base=h.payload)
        else:
            self.fep.count("control packet %d ignored" % h.ctl)
