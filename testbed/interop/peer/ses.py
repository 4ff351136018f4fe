"""Messages: sending, matching, unexpected ones, responses, generations; one-sided operations.

Follows UE 3.4: headers and field rules, segmentation and reassembly, matching of tagged and untagged
messages in post order, what a target without a matching buffer may answer, generations of a resource
index, which response is guaranteed, and what each return code asks of the initiator; and for writes,
reads and atomics on 64-bit numbers: keys, rights, bounds, where read data goes.
"""
import collections
import hashlib
import struct

from wire import *

POISON = 0xA5
RETRY = (RC_BAD_GENERATION, RC_DISABLED_GEN, RC_NO_MATCH)


class TxMessage:
    """A message to send."""

    def __init__(self, seq, ctx, dest, opcode, payload, match, data, form, dc, mtu, initiator):
        self.seq, self.ctx, self.dest, self.opcode = seq, ctx, dest, opcode
        self.payload, self.match, self.data, self.form = payload, match, data, form
        self.dc, self.mtu, self.initiator = dc, mtu, initiator
        self.retries, self.began, self.resume = 0, None, 0.0
        self.buf_off, self.psn = 0, None

    def start(self, now, msg_id, gen):
        """Begins anew from byte 0 under another message id."""
        self.msg_id, self.gen = msg_id, gen
        self.off, self.all_sent, self.open = 0, False, 0
        self.touched = False  # some packet was acknowledged
        self.rc, self.rc_gen, self.list = None, 0, EXPECTED
        self.deferred = self.answered = False
        if self.began is None:
            self.began = now

    def segment(self):
        """The next packet: next_hdr, SES header with payload, and whether it is the last."""
        length = len(self.payload)
        flags = (S_REL if self.dest.relative else 0) | (S_DC if self.dc else 0)
        d = self.dest
        self.open += 1
        if self.rc is not None:
            # Failed before all of it was sent: MSG_ERROR ends it.
            self.all_sent = True
            r = SesRequest(NH_STD, MSG_ERROR, flags | S_EOM | (S_SOM if self.off == 0 else 0), self.msg_id, self.gen,
                           d.job, d.pid, d.ri, self.buf_off, self.initiator, self.match, 0, length, 0, self.off)
            return NH_STD, r.pack(), True
        part = self.payload[self.off:self.off + self.mtu]
        last = self.off + len(part) >= length
        if self.off == 0:
            flags |= S_SOM | (S_HD if self.data is not None else 0)
        if last:
            flags |= S_EOM
        form = self.form if length <= min(self.mtu, 0x3FFF) else NH_STD
        r = SesRequest(form, self.opcode, flags, self.msg_id, self.gen, d.job, d.pid, self.index(form), self.buf_off,
                       self.initiator, self.match, self.data or 0, length, len(part), self.off)
        self.off += len(part)
        self.all_sent = last
        return form, r.pack() + part, last

    def index(self, form):
        """The resource index; in the small form it stands for the key."""
        return self.match & RKEY_MASK if form == NH_SMALL else self.dest.ri

    def missing(self):
        """Whether data of the target is still awaited."""
        return False

    def result(self):
        """What the event at the end says besides."""
        return {}


class TxRemote(TxMessage):
    """A read or an atomic: requests without data, or operands. What comes back is kept in buf, with poison behind."""

    def __init__(self, *args, size=0, ext=b"", length=None, answer=None):
        super().__init__(*args)
        self.size, self.ext, self.length = size, ext, size if length is None else length
        self.expect = self.length if self.opcode == READ else answer

    def start(self, now, msg_id, gen):
        super().start(now, msg_id, gen)
        self.buf, self.have = bytearray([POISON]) * (self.expect + 64), {}

    def segment(self):
        if self.opcode != READ:
            self.open += 1
            self.all_sent = True
            d = self.dest
            flags = (S_REL if d.relative else 0) | (S_DC if self.dc else 0) | S_SOM | S_EOM
            r = SesRequest(self.form, self.opcode, flags, self.msg_id, self.gen, d.job, d.pid, self.index(self.form),
                           self.buf_off, self.initiator, self.match, 0, self.length, ext=self.ext)
            return self.form, r.pack() + self.payload, True
        if self.rc is not None:
            self.payload = bytes(self.size)  # MSG_ERROR says the length
            return super().segment()
        self.open += 1
        d, n = self.dest, min(self.mtu, self.size - self.off)
        last = self.off + n >= self.size
        form = self.form if self.size <= min(self.mtu, 0x3FFF) else NH_STD
        flags = (S_REL if d.relative else 0) | (S_DC if self.dc else 0) | (S_SOM if self.off == 0 else 0) | (S_EOM if last else 0)
        r = SesRequest(form, READ, flags, self.msg_id, self.gen, d.job, d.pid, self.index(form), self.buf_off,
                       self.initiator, self.match, 0, self.size, n, self.off)
        self.off += n
        self.all_sent = last
        return form, r.pack(), last

    def place(self, resp):
        """Takes a RESPONSE_W_DATA; returns what is wrong with it, or None."""
        off, n = resp.msg_off, len(resp.data)
        if off + n > self.expect or n != resp.pay_len:
            return "data outside of the request"
        if off in self.have:
            return "data twice"
        if resp.form == NH_RSP_DATA and resp.modified != self.length:
            return "modified_length"
        if self.opcode == READ and (off % self.mtu or n != min(self.mtu, self.size - off)):
            return "not what was asked for"
        self.buf[off:off + n] = resp.data
        self.have[off] = n
        self.touched = self.answered = True
        return None

    def missing(self):
        return sum(self.have.values()) < self.expect

    def result(self):
        guard = self.buf.count(POISON, self.expect) == len(self.buf) - self.expect
        if self.opcode == READ:
            return dict(len=self.size, guard=guard, sha256=hashlib.sha256(self.buf[:self.size]).hexdigest())
        return dict(guard=guard, value=int.from_bytes(self.buf[:self.expect], "big"))


class TxAnnounced(TxMessage):
    """A message that is announced: the first bytes of it go along, the rest the target reads (UE 3.4, rendezvous)."""

    def __init__(self, *args, eager, lent):
        super().__init__(*args)
        self.eager, self.lent, self.pdc = eager, lent, None

    def start(self, now, msg_id, gen):
        super().start(now, msg_id, gen)
        self.served, self.kept = {}, self.eager

    def segment(self):
        if self.rc is not None:
            return super().segment()
        d, part = self.dest, self.payload[self.off:min(self.off + self.mtu, self.eager)]
        last = self.off + len(part) >= self.eager
        flags = (S_REL if d.relative else 0) | (S_DC if self.dc else 0) | (S_EOM if last else 0)
        ext = b""
        if self.off == 0:
            flags |= S_SOM | (S_HD if self.data is not None else 0)
            ext = pack_rendezvous(self.eager, 0, self.lent.pid, self.lent.ri, self.lent.base, self.lent.key)
        r = SesRequest(NH_STD, self.opcode, flags, self.msg_id, self.gen, d.job, d.pid, d.ri, self.buf_off, self.initiator,
                       self.match, self.data or 0, len(self.payload), len(part), self.off, ext)
        self.open += 1
        self.off += len(part)
        self.all_sent = last
        return NH_STD, r.pack() + part, last

    def missing(self):
        """Whether the target has not read the rest: what did not go along, or all if it kept nothing of that."""
        at = self.kept
        for off, n in sorted(self.served.items()):
            if off <= at:
                at = max(at, off + n)
        return at < len(self.payload)


class Served:
    """Bytes of an announced message that were returned."""

    def __init__(self, message, off, n):
        self.message, self.off, self.n, self.psn = message, off, n, None


class TxPull(TxRemote):
    """The read of what was announced."""

    def __init__(self, rx, *args, **how):
        super().__init__(*args, **how)
        self.rx = rx


class Region:
    """Memory that peers may reach by its key, poison on both sides."""
    GUARD = 64
    base, message = 0, None

    def __init__(self, key, data, rights):
        self.key, self.size, self.rights = key, len(data), set(rights)
        self.buf = bytearray([POISON]) * self.GUARD + data + bytearray([POISON]) * self.GUARD

    def look(self, at, n):
        return self.buf[self.GUARD + at:self.GUARD + at + n]

    def put(self, at, data):
        self.buf[self.GUARD + at:self.GUARD + at + len(data)] = data

    def guard(self):
        return self.buf[:self.GUARD].count(POISON) + self.buf[-self.GUARD:].count(POISON) == 2 * self.GUARD


class Lent(Region):
    """The memory of an announced message, from an offset on that is not 0. It is of that message alone."""

    def __init__(self, key, data, base, pid, ri):
        super().__init__(key, data, {"read"})
        self.base, self.pid, self.ri, self.size = base, pid, ri, base + len(data)

    def look(self, at, n):
        return super().look(at - self.base, n)


class Dest:
    """The endpoint that a message is for."""
    __slots__ = ("ip", "port", "pid", "ri", "job", "relative")

    def __init__(self, ip, port, pid=0, ri=15, job=1, relative=True):
        self.ip, self.port, self.pid, self.ri, self.job, self.relative = ip, port, pid, ri, job, relative


class Flow:
    """The messages to one peer that share a PDC: RUD or ROD."""

    def __init__(self, ip, port, ordered):
        self.ip, self.port, self.ordered = ip, port, ordered
        self.queue, self.inflight, self.failed = collections.deque(), {}, []
        self.pdc, self.refused, self.not_before = None, 0, 0.0

    def waiting(self):
        return bool(self.queue or self.failed)


class Posted:
    """A receive buffer, poisoned so that a byte nobody wrote shows."""

    def __init__(self, ctx, size, tag, ignore):
        self.ctx, self.tag, self.ignore = ctx, tag, ignore
        self.buf = bytearray([POISON]) * size

    def accepts(self, match):
        return self.tag is None or (match ^ self.tag) & ~self.ignore & 0xFFFFFFFFFFFFFFFF == 0


class RxMessage:
    """A message that is coming in, or that came and has no receive."""

    def __init__(self, r, pdc, key):
        self.opcode, self.length, self.match, self.initiator = r.opcode, r.length, r.match, r.initiator
        self.job, self.pdc, self.key, self.ip = r.job, pdc, key, pdc.ip
        self.posted, self.buf = None, None
        self.got, self.som, self.data = 0, False, None
        self.rc, self.gen = None, 0
        self.unexpected, self.psns, self.msg_id = False, [], r.msg_id
        self.buf_off, self.answer_id = r.buf_off, 0
        self.rdv, self.eager = r.opcode in RENDEZVOUS, None  # eager: that and where the rest is, once known

    def same(self, r):
        return (self.opcode, self.length, self.match, self.initiator, self.job) == \
            (r.opcode, r.length, r.match, r.initiator, r.job)


class Space:
    """One resource index as target: posted receives, unexpected messages, generation."""

    def __init__(self):
        self.posted, self.unexpected = [], []
        self.gen, self.disabled = 0, False


class Ses:
    def __init__(self, fep):
        self.fep, self.cfg = fep, fep.cfg
        self.seq = 0
        self.flows = {}
        self.gens = {}  # (ip, port, pid, ri, tagged): last known generation
        self.spaces = {False: Space(), True: Space()}
        self.inbound = {}  # (pdc, message id): RxMessage
        self.regions = {}  # key: Region
        self.announced, self.had = {}, set()  # by (ip, key): messages that wait or are read; those of which all came

    # Initiator.

    def send(self, now, ctx, dest, payload, ordered=False, tag=None, data=None, form=NH_STD, dc=False):
        self.seq += 1
        m = TxMessage(self.seq, ctx, dest, SEND if tag is None else TAGGED_SEND, payload, tag or 0, data, form, dc,
                      self.cfg.mtu, self.cfg.initiator)
        self.queue(dest, ordered, m)

    def announce(self, now, ctx, dest, payload, eager, ordered=False, tag=None, data=None, dc=False):
        """Announces a message, of which so many bytes go along."""
        self.seq += 1
        key = self.fep.rng.randrange(1 << 32, 1 << 62)
        lent = Lent(key, payload, self.fep.rng.randrange(1, 1 << 20), self.cfg.pid, self.cfg.ri)
        m = TxAnnounced(self.seq, ctx, dest, RENDEZVOUS_SEND if tag is None else RENDEZVOUS_TSEND, payload, tag or 0, data,
                        NH_STD, dc, self.cfg.mtu, self.cfg.initiator, eager=min(eager, len(payload)), lent=lent)
        lent.message = m
        self.regions[key] = lent
        self.fep.stats["announced"] += 1
        self.queue(dest, ordered, m)

    def queue(self, dest, ordered, m):
        key = (dest.ip, dest.port, ordered)
        if key not in self.flows:
            self.flows[key] = Flow(*key)
        self.flows[key].queue.append(m)

    def remote(self, now, ctx, dest, opcode, key, at, payload=b"", size=0, operation=AMO_SUM, operand=0, compare=0,
               ordered=False, data=None, form=NH_STD, dc=False, datatype=UINT64):
        """A write of payload, a read of size bytes, or an atomic with its operands, at an offset of a region."""
        self.seq += 1
        args = (self.seq, ctx, dest, opcode, payload, key, data, form, dc, self.cfg.mtu, self.cfg.initiator)
        if opcode == WRITE:
            m = TxMessage(*args)
        elif opcode == READ:
            m = TxRemote(*args, size=size)
        else:
            ext, length, payload = struct.pack("!BBBB", operation, datatype, CPU_COHERENT, 0), 8, struct.pack("!Q", operand)
            if operation in TWO_OPERANDS:
                ext += struct.pack("!QQQQ", 0, compare, 0, operand)
                length, payload = self.cfg.cswap_length, b""
            m = TxRemote(*args[:4], payload, *args[5:], ext=ext, length=length,
                         answer=8 if opcode == FETCHING_ATOMIC else 0)
        m.buf_off = at
        self.queue(dest, ordered, m)

    def gen_key(self, m):
        space = "RMA" if m.opcode in ONE_SIDED else m.opcode in (TAGGED_SEND, RENDEZVOUS_TSEND)
        return (m.dest.ip, m.dest.port, m.dest.pid, m.dest.ri, space)

    def end(self, now, m, **fields):
        """A message has ended."""
        if isinstance(m, TxPull):
            self.pulled(now, m, **fields)
            return
        if isinstance(m, TxAnnounced):
            self.regions.pop(m.lent.key, None)
        self.fep.event("sent", ctx=m.ctx, **fields)

    def next_message(self, now, pdc):
        """The next message that may begin on a PDC, or None."""
        f = pdc.flow
        if f is None or pdc.closing:
            return None
        if f.failed:
            if f.ordered and (f.inflight or now < max(m.resume for m in f.failed)):
                return None  # none may overtake those that failed (UE 3.4, generations)
            ready = [m for m in f.failed if m.resume <= now]
            f.failed = [m for m in f.failed if m.resume > now]
            f.queue.extendleft(reversed(sorted(ready, key=lambda m: m.seq)))
        if not f.queue:
            return None
        m = f.queue.popleft()
        m.start(now, pdc.msg_id(), self.gens.get(self.gen_key(m), 0))
        f.inflight[m.seq] = m
        pdc.msgs[m.msg_id] = m
        m.pdc = pdc
        return m

    def holds(self, pdc):
        """Whether messages on a PDC have not ended."""
        return bool(pdc.msgs)

    def packet_done(self, now, pdc, m, psn, resp):
        """One packet of a message is acknowledged; resp None is a default response."""
        if isinstance(m, Served):
            m.message.served[m.off] = max(m.n, m.message.served.get(m.off, 0))
            if m.message.pdc is not None:
                self.settle(now, m.message.pdc, m.message)
            return
        m.open -= 1
        m.touched = True
        if resp is not None:
            self.note(m, resp)
        self.settle(now, pdc, m)

    def note(self, m, resp, returned=False):
        if resp.opcode == NO_RESPONSE:
            m.deferred = True
            return
        if resp.opcode == RESPONSE_W_DATA:
            self.take_data(m, resp, returned)
        if resp.opcode == RESPONSE:
            m.answered = True
        if resp.list == OVERFLOW:
            m.list = OVERFLOW
            if isinstance(m, TxAnnounced) and resp.modified < m.eager:
                m.kept = 0  # it reads all
        if resp.rc not in (RC_NULL, RC_OK) and m.rc is None:
            m.rc, m.rc_gen = resp.rc, resp.gen

    def take_data(self, m, resp, returned):
        """Data in an ACK or in the return direction; what is wrong with it is counted and fails the message."""
        wrong = "data that was not asked for"
        self.fep.stats["data returned" if returned else "data in ack"] += 1
        if isinstance(m, TxRemote):
            if resp.form == NH_RSP_DATA and (m.form != NH_STD and m.size <= m.mtu):
                wrong = "a standard response to a short request"
            elif resp.form == NH_RSP_DATA and resp.read_msg_id != m.msg_id:
                wrong = "read_request_message_id"
            elif resp.form == NH_RSP_DATA_SMALL and resp.psn != m.psn:
                wrong = "original_request_psn"
            else:
                wrong = m.place(resp)
        if wrong:
            self.fep.stats["odd: " + wrong] += 1
            m.rc = m.rc or RC_UNCOR

    def on_data(self, now, pdc, a):
        """Takes a packet of the return direction. Returns response, guaranteed or not, NACK code."""
        resp, data = parse_ses_response(a.hdr.next_hdr, a.body)
        resp.data = bytes(data)
        ok = SesResponse(DEFAULT_RESPONSE, RC_OK, resp.msg_id, job=resp.job)
        if resp.form == NH_RSP_DATA:
            m = pdc.msgs.get(resp.read_msg_id)
        else:
            m = next((w for w in pdc.msgs.values() if w.psn == resp.psn and w.form != NH_STD), None)
        if m is None:
            self.fep.stats["data for no message"] += 1
            return ok, False, 0
        self.note(m, resp, True)
        self.settle(now, pdc, m)
        return ok, False, 0

    def answered(self, now, pdc, m, resp):
        """The RESPONSE to what was first answered NO_RESPONSE."""
        self.note(m, resp)
        m.answered = True
        for psn in [p for p, w in pdc.tx.awaiting.items() if w is m]:
            del pdc.tx.awaiting[psn]
        self.settle(now, pdc, m)

    def settle(self, now, pdc, m):
        if not m.all_sent or m.open > 0 or pdc.msgs.get(m.msg_id) is not m:
            return
        if m.rc is None and (m.deferred and not m.answered or m.missing()):
            return
        del pdc.msgs[m.msg_id]
        for psn in [p for p, w in pdc.tx.awaiting.items() if w is m]:
            del pdc.tx.awaiting[psn]
        f = pdc.flow
        f.refused = 0
        f.inflight.pop(m.seq, None)
        if m.rc in RETRY and now - m.began < self.cfg.give_up:
            m.retries += 1
            if m.rc == RC_BAD_GENERATION:
                self.gens[self.gen_key(m)] = m.rc_gen
                m.resume = now
            else:
                m.resume = now + min(0.02 * (1 << min(m.retries, 4)), 0.2) * (0.75 + self.fep.rng.random() / 2)
            self.fep.event("retry", ctx=m.ctx, rc=m.rc)
            f.failed.append(m)
            return
        self.end(now, m, ok=m.rc is None, rc=m.rc, list=m.list, retries=m.retries, **m.result())

    def expire(self, now, pdc):
        """Fails messages whose data does not come though every request was answered."""
        for m in [m for m in pdc.msgs.values() if m.all_sent and m.open == 0 and m.missing()]:
            if now - m.began > self.cfg.give_up:
                del pdc.msgs[m.msg_id]
                pdc.flow.inflight.pop(m.seq, None)
                self.end(now, m, ok=False, rc=m.rc, why="no data came")

    def pdc_lost(self, now, pdc, why, code, fresh):
        """The messages of a PDC that ended in error: again by another one, or failed."""
        f = pdc.flow
        again = []
        for m in sorted(pdc.msgs.values(), key=lambda m: m.seq):
            if f is not None:
                f.inflight.pop(m.seq, None)
            if fresh and not m.touched and now - m.began < self.cfg.give_up:
                again.append(m)
            else:
                self.end(now, m, ok=False, rc=m.rc, nack=code, why=why)
        pdc.msgs, pdc.msg = {}, None
        if f is not None and again:  # not at once, and later each time
            f.refused += 1
            f.not_before = now + 0.002 * (1 << min(f.refused, 7))
            f.queue.extendleft(reversed(again))

    # Target.

    def post(self, now, ctx, size, tag=None, ignore=0):
        """Posts a receive; the oldest unexpected message that matches takes it at once."""
        p = Posted(ctx, size, tag, ignore)
        space = self.spaces[tag is not None]
        if space.disabled:
            space.disabled, space.gen = False, space.gen % 255 + 1
            self.fep.event("enabled", gen=space.gen)
        for m in space.unexpected:
            if p.accepts(m.match):
                space.unexpected.remove(m)
                m.posted = p
                if m.rdv and m.eager and m.got == m.eager[0]:
                    self.pull(now, m)
                elif not m.rdv and m.got == m.length and m.som:
                    self.deliver(now, m)
                return
        space.posted.append(p)

    def default(self, a):
        """The default response to a packet that was received before: nothing is known of it."""
        msg_id = 0
        if a.ctl == ACK_REQ:
            msg_id = a.hdr.payload & 0xFFFF
        elif a.hdr.next_hdr == NH_STD:
            msg_id = parse_ses_request(NH_STD, a.body)[0].msg_id
        elif a.hdr.next_hdr == NH_RSP_DATA:
            msg_id = parse_ses_response(NH_RSP_DATA, a.body)[0].msg_id
        return SesResponse(DEFAULT_RESPONSE, RC_NULL, msg_id)

    def refuse(self, r, rc, gen=0):
        return SesResponse(RESPONSE, rc, r.msg_id, gen=gen, job=r.job), True, 0

    def on_request(self, now, pdc, a):
        """Takes one packet, which PDS hands over once. Returns response, guaranteed or not, NACK code."""
        r, payload = parse_ses_request(a.hdr.next_hdr, a.body)
        if r.flags >> 6:
            return self.refuse(r, RC_UNCOR)
        if r.pid != self.cfg.pid:
            return self.refuse(r, RC_BAD_PID)
        small = r.form == NH_SMALL and r.opcode in ONE_SIDED  # its resource index is the key
        if small:
            r.match = OPTIMIZED | r.ri
        if r.ri != self.cfg.ri and not (small and r.match in self.regions):
            return self.refuse(r, RC_BAD_INDEX)
        if r.job != self.cfg.job:
            return self.refuse(r, RC_BAD_JOB_ID)
        ok = SesResponse(DEFAULT_RESPONSE, RC_OK, r.msg_id, job=r.job, modified=r.length)
        if r.opcode == NO_OP:
            return self.asks(pdc, r, ok)
        key = (pdc, r.msg_id)
        if r.opcode == MSG_ERROR:
            # It says how much was sent: under RUD the rest of that may come after it.
            m = self.inbound.get(key)
            if m is None and r.msg_off > 0:
                m = self.inbound[key] = RxMessage(r, pdc, key)
            if m is not None:
                if m.posted is not None and m.rc is None:
                    self.fep.event("received", ctx=m.posted.ctx, ok=False, rc=RC_INITIATOR_ERROR)
                for space in self.spaces.values():
                    if m in space.unexpected:
                        space.unexpected.remove(m)
                m.rc, m.length = m.rc or RC_INITIATOR_ERROR, r.msg_off
                if m.got >= m.length:
                    del self.inbound[key]
            return ok, False, 0
        if r.opcode in ONE_SIDED:
            return self.on_remote(now, pdc, a, r, payload, key)
        if r.opcode not in (SEND, TAGGED_SEND, *RENDEZVOUS) or r.form == NH_SMALL:
            return self.refuse(r, RC_UNSUPPORTED_OP)
        if r.form != NH_STD and not (r.som and r.eom):
            return self.refuse(r, RC_OP_VIOLATION)
        if len(payload) != r.pay_len or r.msg_off + r.pay_len > r.length or \
                (r.eom and r.msg_off + r.pay_len != r.length and r.opcode not in RENDEZVOUS):
            return self.refuse(r, RC_OP_VIOLATION)
        if r.ext and (parse_rendezvous(r.ext)[0] > r.length or r.pay_len > parse_rendezvous(r.ext)[0]):
            return self.refuse(r, RC_OP_VIOLATION)
        space = self.spaces[r.opcode in (TAGGED_SEND, RENDEZVOUS_TSEND)]
        m = self.inbound.get(key) if r.form == NH_STD else None
        if m is not None and r.som and m.som:
            m = None  # the id is used again
        if m is None:
            if space.disabled:
                return self.refuse(r, RC_DISABLED_GEN, space.gen)
            if r.gen != space.gen:
                return self.refuse(r, RC_BAD_GENERATION, space.gen)
            if r.flags & S_IE:
                return self.refuse(r, RC_INITIATOR_ERROR)
            m = RxMessage(r, pdc, key)
            self.match(space, m, pdc)
            if m.rc is None or not (r.som and r.eom):
                self.inbound[key] = m
        elif m.rc is None and not m.same(r):
            return self.refuse(r, RC_OP_VIOLATION)
        return self.take(now, m, r, payload, a.hdr.psn)

    # Target of writes, reads and atomics.

    def region(self, key, data, rights):
        self.regions[key] = Region(key, data, rights)

    def on_remote(self, now, pdc, a, r, payload, key):
        """One packet of a write, a read or an atomic. The first error of a message is that of all its packets."""
        if r.form != NH_STD and not (r.som and r.eom):
            return self.refuse(r, RC_OP_VIOLATION)
        if r.opcode == READ and (r.som or r.form != NH_STD):
            extra, r.pay_len = len(payload), min(self.cfg.mtu, r.length)  # the length is implied
        else:
            extra = len(payload) if r.opcode == READ else 0
        m = self.inbound.get(key) if r.form == NH_STD else None
        if m is not None and r.som and m.som:
            m = None  # the id is used again
        rc = None
        if m is None:
            m = RxMessage(r, pdc, key)
            if r.form == NH_STD:
                self.inbound[key] = m
            m.answer_id = pdc.msg_id()
            rc = self.check(r)
        elif m.rc is None and m.match != r.match:
            rc = RC_PERM
        elif m.rc is None and not (m.same(r) and m.buf_off == r.buf_off):
            rc = RC_OP_VIOLATION
        if r.opcode in (WRITE, READ):
            if extra or r.pay_len > self.cfg.mtu or (r.opcode == WRITE and len(payload) != r.pay_len) or \
                    r.msg_off + r.pay_len > r.length or (r.eom and r.msg_off + r.pay_len != r.length):
                rc = rc or RC_OP_VIOLATION
            m.got += r.pay_len
        else:
            m.got = m.length
        if r.flags & S_IE:
            rc = rc or RC_INITIATOR_ERROR
        m.rc = m.rc or rc
        if r.som:
            m.som = True
            if r.flags & S_HD:
                m.data = r.data
        done = m.got >= m.length and m.som
        if done and self.inbound.get(key) is m:
            del self.inbound[key]
        if m.rc is not None:
            return self.refuse(r, m.rc)
        reg = self.regions.get(r.match)
        if reg is None:  # what was lent ended in the middle of a read
            return self.refuse(r, RC_BAD_MKEY)
        if r.opcode == WRITE:
            reg.put(r.buf_off + r.msg_off, payload)
            if done and m.data is not None:
                self.fep.event("written", key=r.match, at=r.buf_off, len=r.length, data=m.data, src=m.ip,
                               initiator=r.initiator)
        elif r.opcode == READ:
            return self.answer_read(pdc, a, r, m, reg, done)
        else:
            old, = struct.unpack("!Q", reg.look(r.buf_off, 8))
            if r.ext[0] == AMO_SUM:
                new = old + struct.unpack("!Q", payload)[0]
            else:
                compare, swap = struct.unpack("!8xQ8xQ", r.ext[4:])
                new = swap if compare == old else old
            reg.put(r.buf_off, struct.pack("!Q", new & 0xFFFFFFFFFFFFFFFF))
            if r.opcode == FETCHING_ATOMIC:
                return self.with_data(a, r, m, struct.pack("!Q", old), True), True, 0
        return SesResponse(DEFAULT_RESPONSE, RC_OK, r.msg_id, job=r.job, modified=r.length), False, 0

    def check(self, r):
        """Whether a one-sided message may be: its return code, or None (UE 3.4: key, right, bounds, atomic)."""
        if r.gen:
            return RC_BAD_GENERATION
        reg = self.regions.get(r.match)
        if reg is None:
            return RC_BAD_MKEY
        needs = {WRITE: {"write"}, READ: {"read"}, ATOMIC: {"write"}, FETCHING_ATOMIC: {"read", "write"}}[r.opcode]
        if not needs <= reg.rights:
            return RC_PERM
        two = bool(r.ext) and r.ext[0] in TWO_OPERANDS
        if r.buf_off < reg.base or r.buf_off + (8 if two else r.length) > reg.size:
            return RC_BAD_ADDR
        if r.opcode in (WRITE, READ):
            return None
        if r.ext[0] not in (AMO_SUM, AMO_CSWAP):
            return RC_AMO_OP
        if r.ext[1] != UINT64:
            return RC_AMO_DT
        if r.length not in ((8, 32) if two else (8,)) or r.pay_len != (0 if two else 8):
            return RC_AMO_SIZE
        return RC_AMO_UNALIGNED if r.buf_off % 8 else None

    # Target of announced messages.

    def asks(self, pdc, r, ok):
        """A NO_OP. With a key it is uetkit's question for an announced message, which any other target answers like all."""
        key = (pdc.ip, r.match)
        if self.cfg.asked != "reads" or not r.match:
            return ok, False, 0
        if key in self.announced:
            return SesResponse(RESPONSE, RC_OK, r.msg_id, job=r.job, list=OVERFLOW), True, 0
        if key in self.had:
            return SesResponse(RESPONSE, RC_OK, r.msg_id, job=r.job, list=EXPECTED), True, 0
        return self.refuse(r, RC_UNDELIVERABLE)

    def pull(self, now, m):
        """Reads the rest of a message that has its receive, by a PDC of its own."""
        eager, gen, pid, ri, at, key = m.eager
        if eager == m.length:
            self.have(now, m)
            return
        self.seq += 1
        port = self.cfg.peer_port or m.pdc.port
        dest = Dest(m.ip, port, pid, ri, m.job)
        t = TxPull(m, self.seq, None, dest, READ, b"", key, None, NH_STD, False, self.cfg.mtu, self.cfg.initiator,
                   size=m.length - eager)
        t.buf_off = at + eager
        self.fep.stats["read"] += 1
        flow = (m.ip, port, "reads")
        if flow not in self.flows:
            self.flows[flow] = Flow(m.ip, port, False)
        self.flows[flow].queue.append(t)

    def pulled(self, now, t, ok, rc=None, **why):
        """The read of the rest has ended."""
        m = t.rx
        if not ok:
            self.announced.pop((m.ip, m.eager[5]), None)
            self.fep.event("received", ctx=m.posted.ctx, ok=False, rc=rc, why="not read")
            return
        m.buf[m.eager[0]:m.length] = t.buf[:t.size]
        self.have(now, m)

    def have(self, now, m):
        self.announced.pop((m.ip, m.eager[5]), None)
        self.had.add((m.ip, m.eager[5]))
        self.deliver(now, m)

    def with_data(self, a, r, m, data, in_ack):
        if r.form == NH_STD:
            return SesResponse(RESPONSE_W_DATA, RC_OK, r.msg_id if in_ack else m.answer_id, job=r.job, modified=r.length,
                               form=NH_RSP_DATA, pay_len=len(data), msg_off=r.msg_off, read_msg_id=r.msg_id, data=data)
        return SesResponse(RESPONSE_W_DATA, RC_OK, 0, job=r.job, form=NH_RSP_DATA_SMALL, pay_len=len(data),
                           psn=a.hdr.psn, data=data)

    def answer_read(self, pdc, a, r, m, reg, done):
        """The data of a whole read of few bytes is in the ACKs; of any other it takes the return direction."""
        ok = SesResponse(DEFAULT_RESPONSE, RC_OK, r.msg_id, job=r.job, modified=r.length)
        if r.length == 0 and self.cfg.zero_read == "default":
            return ok, False, 0
        data = bytes(reg.look(r.buf_off + r.msg_off, r.pay_len))
        served = None
        if reg.message is not None:
            served = Served(reg.message, r.buf_off + r.msg_off - reg.base, len(data))
        in_ack = r.length <= self.cfg.ack_data and served is None
        resp = self.with_data(a, r, m, data, in_ack)
        if in_ack:
            return resp, True, 0
        pdc.returns.append((resp.form, resp.pack() + data, done, served))
        return ok, False, 0

    def match(self, space, m, pdc):
        for p in space.posted:
            if p.accepts(m.match):
                space.posted.remove(p)
                m.posted, m.buf = p, p.buf
                if m.length > len(p.buf) and self.cfg.too_long == "refuse":
                    m.rc = RC_TOO_LONG
                    self.fep.event("received", ctx=p.ctx, ok=False, rc=m.rc, msglen=m.length)
                return
        mode = self.cfg.unexpected
        if mode in ("overflow", "late"):
            m.unexpected, m.buf = True, bytearray([POISON]) * m.length
            space.unexpected.append(m)
        elif mode == "disable" or pdc.ordered:
            m.rc, m.gen = RC_DISABLED_GEN, space.gen
            space.disabled = True
        else:
            m.rc = RC_NO_MATCH

    def take(self, now, m, r, payload, psn):
        if r.som:
            m.som = True
            if r.flags & S_HD:
                m.data = r.data
            if m.rdv:
                m.eager = parse_rendezvous(r.ext)
        if m.rdv and m.rc is None:
            return self.take_eager(now, m, r, payload)
        m.got += len(payload)
        m.psns.append(psn)
        done = m.got == m.length and m.som
        if m.rc is not None:
            if m.got >= m.length:
                self.inbound.pop(m.key, None)
            return self.refuse(r, m.rc, m.gen)
        part = payload[:max(0, len(m.buf) - r.msg_off)]
        m.buf[r.msg_off:r.msg_off + len(part)] = part
        if done:
            self.inbound.pop(m.key, None)
            if m.posted is not None:
                self.deliver(now, m, m.unexpected and self.cfg.unexpected == "late")
        if m.unexpected:
            if self.cfg.unexpected == "late":
                return SesResponse(NO_RESPONSE, RC_NULL, r.msg_id, job=r.job), False, 0
            return SesResponse(RESPONSE, RC_OK, r.msg_id, job=r.job, modified=r.length, list=OVERFLOW), True, 0
        if m.length > len(m.buf):
            return SesResponse(RESPONSE, RC_OK, r.msg_id, job=r.job, modified=len(m.buf)), True, 0
        return SesResponse(DEFAULT_RESPONSE, RC_OK, r.msg_id, job=r.job, modified=r.length), False, 0

    def take_eager(self, now, m, r, payload):
        """One packet of what goes along with an announcement. The rest is read when there is a receive."""
        if len(m.buf) < m.length or m.posted is not None and m.buf is m.posted.buf:
            m.buf = bytearray([POISON]) * m.length
        m.buf[r.msg_off:r.msg_off + len(payload)] = payload
        m.got += len(payload)
        if m.eager and m.got == m.eager[0]:
            self.inbound.pop(m.key, None)
            self.announced[(m.ip, m.eager[5])] = m
            if m.posted is not None:
                self.pull(now, m)
        if m.unexpected:
            return SesResponse(RESPONSE, RC_OK, r.msg_id, job=r.job, modified=m.got, list=OVERFLOW), True, 0
        return SesResponse(DEFAULT_RESPONSE, RC_OK, r.msg_id, job=r.job, modified=r.length), False, 0

    def deliver(self, now, m, answer_later=False):
        """A message is complete and has a receive."""
        p = m.posted
        n = min(m.length, len(p.buf))
        if m.buf is not p.buf:
            p.buf[:n] = m.buf[:n]
        guard = p.buf.count(POISON, n) == len(p.buf) - n
        self.fep.event("received", ctx=p.ctx, ok=True, len=n, msglen=m.length, tag=m.match, data=m.data,
                       initiator=m.initiator, src=m.ip, guard=guard, tagged=m.opcode in (TAGGED_SEND, RENDEZVOUS_TSEND),
                       unexpected=m.unexpected, sha256=hashlib.sha256(p.buf[:n]).hexdigest())
        if m.unexpected and self.cfg.unexpected == "late" and not m.rdv:
            final = SesResponse(RESPONSE, RC_OK, m.msg_id, job=m.job, modified=n, list=OVERFLOW)
            if answer_later:  # the NO_RESPONSE of the last packet leaves first
                self.fep.later.append((m.pdc, m.psns, final))
            else:
                m.pdc.late(now, m.psns, final)
