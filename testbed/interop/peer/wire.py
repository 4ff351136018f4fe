"""Bytes of the PDS and SES headers, and arithmetic of packet sequence numbers.

Follows UE 3.5.10 (PDS formats: .2 prologue, .3 request, .4 request with CC, .5 ACK, .6 ACK_CC,
.7 ACK_CCX, .8 control packet, .9 RUDI, .10 NACK, .12 UUD) and UE 3.4 (SES formats: standard, medium
and small requests, the three responses). Everything is big-endian. Nothing here remembers anything.
"""
import struct
from dataclasses import dataclass

# PDS types.
TSS, RUD_REQ, ROD_REQ, RUDI_REQ, RUDI_RESP, UUD_REQ = 1, 2, 3, 4, 5, 6
ACK, ACK_CC, ACK_CCX, NACK, CP, NACK_CCX, RUD_CC_REQ, ROD_CC_REQ = 7, 8, 9, 10, 11, 12, 13, 14
REQUESTS = (RUD_REQ, ROD_REQ, RUD_CC_REQ, ROD_CC_REQ)
ACKS = (ACK, ACK_CC, ACK_CCX)

# next_hdr: the SES header that follows.
NH_NONE, NH_SMALL, NH_MEDIUM, NH_STD, NH_RSP, NH_RSP_DATA, NH_RSP_DATA_SMALL = range(7)

# Flags of requests and control packets.
F_RETX, F_AR, F_SYN, F_ISROD = 0x10, 0x08, 0x04, 0x20
# Flags of ACKs; REQ is two bits.
A_EPSN, A_M, A_RETX, A_P, A_REQ = 0x40, 0x20, 0x10, 0x08, 0x06
REQ_NONE, REQ_CLEAR, REQ_CLOSE = 0, 1, 2
# Flags of NACKs.
N_M, N_RETX, N_NT = 0x20, 0x10, 0x08

# Control packets.
(NOOP, ACK_REQ, CLEAR_CMD, CLEAR_REQ, CLOSE_CMD, CLOSE_REQ, PROBE, CREDIT, CREDIT_REQ,
 NEGOTIATION) = range(10)
TAKES_PSN = (NOOP, CLOSE_CMD, CLOSE_REQ, NEGOTIATION)

# SES request opcodes that this peer knows by name.
NO_OP, WRITE, READ, SEND, TAGGED_SEND, MSG_ERROR = 0x00, 0x01, 0x02, 0x05, 0x09, 0x0F
ATOMIC, FETCHING_ATOMIC, TSEND_ATOMIC, TSEND_FETCH_ATOMIC = 0x03, 0x04, 0x0D, 0x0E
RENDEZVOUS_SEND, RENDEZVOUS_TSEND = 0x06, 0x0A
RENDEZVOUS = {RENDEZVOUS_SEND: SEND, RENDEZVOUS_TSEND: TAGGED_SEND}
ONE_SIDED = (WRITE, READ, ATOMIC, FETCHING_ATOMIC)
# SES response opcodes.
DEFAULT_RESPONSE, RESPONSE, RESPONSE_W_DATA, NO_RESPONSE = range(4)
EXPECTED, OVERFLOW = 0, 1
# Return codes.
RC_NULL, RC_OK, RC_BAD_GENERATION, RC_DISABLED, RC_DISABLED_GEN, RC_NO_MATCH = range(6)
RC_UNSUPPORTED_OP, RC_OP_VIOLATION, RC_BAD_INDEX, RC_BAD_PID, RC_BAD_JOB_ID = 0x06, 0x18, 0x19, 0x1A, 0x1B
RC_UNDELIVERABLE = 0x1F
RC_UNCOR, RC_TOO_LONG, RC_INITIATOR_ERROR = 0x20, 0x22, 0x23
RC_AMO_OP, RC_AMO_DT, RC_AMO_SIZE, RC_AMO_UNALIGNED = 0x0F, 0x10, 0x11, 0x12
RC_PERM, RC_BAD_MKEY, RC_BAD_ADDR = 0x17, 0x1C, 0x1D
# Atomic operations and the datatype that this peer knows; 0x0D to 0x13 carry two operands.
AMO_SUM, AMO_CSWAP, UINT64, CPU_COHERENT = 0x02, 0x0D, 0x07, 0x02
TWO_OPERANDS = range(0x0D, 0x14)
# A memory key that the small header can name, and the part of it that is the resource index.
OPTIMIZED, RKEY_MASK = 1 << 62, 0xFFF
# Bits of the second byte of a SES request.
S_DC, S_IE, S_REL, S_HD, S_EOM, S_SOM = 0x20, 0x10, 0x08, 0x04, 0x02, 0x01

MASK = 0xFFFFFFFF


class Malformed(Exception):
    """A packet whose bytes are no UET packet that this peer knows; the text says why."""


def add(psn, n):
    """psn + n, modulo 2^32."""
    return (psn + n) & MASK


def sub(a, b):
    """a - b as a signed number: above 0 if a is newer."""
    d = (a - b) & MASK
    return d - (1 << 32) if d & 0x80000000 else d


def prologue(kind, next_hdr, flags):
    """The first 16 bits of every PDS header; next_hdr is the control type of a CP."""
    return kind << 11 | next_hdr << 7 | flags


@dataclass
class Request:
    """RUD or ROD request: 12 bytes, 16 with credit (UE 3.5.10.3, .4)."""
    kind: int
    next_hdr: int
    flags: int
    clear_off: int
    psn: int
    spdcid: int
    dpdcid: int  # with SYN the PSN offset, 12 bits
    credit: int = 0  # of the CC forms: ccc_id 8, credit_target 24

    @property
    def syn(self):
        return bool(self.flags & F_SYN)

    @property
    def start(self):
        """The Start_PSN that a SYN packet names."""
        return add(self.psn, -(self.dpdcid & 0xFFF))

    @property
    def ordered(self):
        return self.kind in (ROD_REQ, ROD_CC_REQ)

    def pack(self):
        b = struct.pack("!HhIHH", prologue(self.kind, self.next_hdr, self.flags), self.clear_off,
                        self.psn, self.spdcid, self.dpdcid)
        return b if self.kind in (RUD_REQ, ROD_REQ) else b + struct.pack("!I", self.credit)


@dataclass
class Ack:
    """ACK, 12 bytes; ACK_CC, 32; ACK_CCX, 40 (UE 3.5.10.5 to .7)."""
    kind: int
    next_hdr: int
    flags: int
    off: int  # ack_psn - cack; with P the opaque value of the probe
    cack: int
    spdcid: int
    dpdcid: int
    cc_type: int = 0
    mpr: int = 1
    sack_off: int = 0
    sack: int = 0
    cc_state: bytes = bytes(8)
    ccx: bytes = bytes(8)
    epsn: int = None

    @property
    def req(self):
        return (self.flags & A_REQ) >> 1

    @property
    def psn(self):
        """The packet whose response this ACK has."""
        return add(self.cack, self.off)

    def pack(self):
        off = self.off & 0xFFFF
        b = struct.pack("!HHIHH", prologue(self.kind, self.next_hdr, self.flags), off, self.cack,
                        self.spdcid, self.dpdcid)
        if self.kind == ACK:
            return b
        b += struct.pack("!BBhQ", self.cc_type << 4, self.mpr, self.sack_off, self.sack) + self.cc_state
        return b if self.kind == ACK_CC else b + self.ccx


@dataclass
class Nack:
    """NACK, 16 bytes (UE 3.5.10.10)."""
    flags: int
    code: int
    psn: int
    spdcid: int
    dpdcid: int
    payload: int = 0

    def pack(self):
        return struct.pack("!HBBIHHI", prologue(NACK, NH_NONE, self.flags), self.code, 0, self.psn,
                           self.spdcid, self.dpdcid, self.payload)


@dataclass
class Control:
    """Control packet, 16 bytes; NEGOTIATION has 12 and what it negotiates behind them (UE 3.5.10.8)."""
    ctl: int
    flags: int
    opaque: int
    psn: int
    spdcid: int
    dpdcid: int  # with SYN the PSN offset, 12 bits
    payload: int = 0
    tail: bytes = b""

    @property
    def syn(self):
        return bool(self.flags & F_SYN)

    @property
    def start(self):
        return add(self.psn, -(self.dpdcid & 0xFFF))

    @property
    def ordered(self):
        return bool(self.flags & F_ISROD)

    def pack(self):
        b = struct.pack("!HHIHH", prologue(CP, self.ctl, self.flags), self.opaque, self.psn,
                        self.spdcid, self.dpdcid)
        return b + self.tail if self.ctl == NEGOTIATION else b + struct.pack("!I", self.payload)


def parse_pds(b):
    """Decodes the PDS header at the front of b; returns it and what is behind it."""
    if len(b) < 12:
        raise Malformed("short PDS header")
    first, second = struct.unpack_from("!HH", b)
    kind, next_hdr, flags = first >> 11, first >> 7 & 0xF, first & 0x7F
    psn, spdcid, dpdcid = struct.unpack_from("!IHH", b, 4)
    if kind in REQUESTS:
        n = 12 if kind in (RUD_REQ, ROD_REQ) else 16
        if len(b) < n:
            raise Malformed("short request")
        r = Request(kind, next_hdr, flags, signed16(second), psn, spdcid, dpdcid)
        if n == 16:
            r.credit, = struct.unpack_from("!I", b, 12)
        return r, b[n:]
    if kind in ACKS:
        off = second if flags & A_P else signed16(second)
        ack = Ack(kind, next_hdr, flags, off, psn, spdcid, dpdcid)
        n = {ACK: 12, ACK_CC: 32, ACK_CCX: 40}[kind]
        if kind == ACK and flags & A_EPSN:
            n = 16
        if len(b) < n:
            raise Malformed("short ACK")
        if kind == ACK and flags & A_EPSN:
            ack.epsn = struct.unpack_from("!I", b, 12)[0]
        if kind != ACK:
            cc, ack.mpr, ack.sack_off, ack.sack = struct.unpack_from("!BBhQ", b, 12)
            ack.cc_type, ack.cc_state, ack.ccx = cc >> 4, bytes(b[24:32]), bytes(b[32:n])
        return ack, b[n:]
    if kind in (NACK, NACK_CCX):
        if len(b) < 16:
            raise Malformed("short NACK")
        return Nack(flags, b[2], psn, spdcid, dpdcid, struct.unpack_from("!I", b, 12)[0]), b""
    if kind == CP:
        cp = Control(next_hdr, flags, second, psn, spdcid, dpdcid)
        if next_hdr == NEGOTIATION:
            cp.tail = bytes(b[12:])
        elif len(b) < 16:
            raise Malformed("short control packet")
        else:
            cp.payload = struct.unpack_from("!I", b, 12)[0]
        return cp, b""
    raise Malformed("PDS type %d" % kind)


def signed16(v):
    return v - 0x10000 if v & 0x8000 else v


def pack_rendezvous(eager, gen, pid, ri, at, key):
    """The rendezvous extension: what is eager, and the memory that has all of the message (UE 3.4.2)."""
    return struct.pack("!IIQQ", eager, gen << 24 | pid << 12 | ri, at, key)


def parse_rendezvous(b):
    """Returns eager length, generation, PIDonFEP, resource index, offset, key."""
    eager, word, at, key = struct.unpack("!IIQQ", b)
    return eager, word >> 24, word >> 12 & 0xFFF, word & 0xFFF, at, key


@dataclass
class SesRequest:
    """A SES request: standard (44 bytes), medium (32) or small (20), UE 3.4."""
    form: int  # NH_STD, NH_MEDIUM or NH_SMALL
    opcode: int
    flags: int
    msg_id: int  # standard only
    gen: int
    job: int
    pid: int
    ri: int
    buf_off: int
    initiator: int  # not in small
    match: int  # tag or key; not in small
    data: int  # header data, with HD
    length: int  # request_length
    pay_len: int = 0  # without SOM
    msg_off: int = 0  # without SOM
    ext: bytes = b""  # of atomics: what stands between this header and the payload

    @property
    def som(self):
        return bool(self.flags & S_SOM)

    @property
    def eom(self):
        return bool(self.flags & S_EOM)

    def pack(self):
        second = self.msg_id if self.form == NH_STD else self.length & 0x3FFF
        b = struct.pack("!BBHIHH", self.opcode, self.flags, second, self.gen << 24 | self.job, self.pid, self.ri)
        if self.form == NH_SMALL:
            return b + struct.pack("!Q", self.buf_off) + self.ext
        if self.form == NH_MEDIUM:
            slot = self.data if self.flags & S_HD else self.buf_off
            return b + struct.pack("!QIQ", slot, self.initiator, self.match) + self.ext
        if self.som:
            slot = struct.pack("!Q", self.data if self.flags & S_HD else 0)
        else:
            slot = struct.pack("!II", self.pay_len, self.msg_off)
        return b + struct.pack("!QIQ", self.buf_off, self.initiator, self.match) + slot + \
            struct.pack("!I", self.length) + self.ext


def parse_ses_request(form, b):
    """Decodes a SES request at the front of b; returns it and its payload."""
    n = {NH_STD: 44, NH_MEDIUM: 32, NH_SMALL: 20}.get(form)
    if n is None:
        raise Malformed("next_hdr %d is no request" % form)
    if len(b) < n:
        raise Malformed("short SES request")
    op, flags, second, genjob, pid, ri = struct.unpack_from("!BBHIHH", b)
    r = SesRequest(form, op & 0x3F, flags, second, genjob >> 24, genjob & 0xFFFFFF, pid & 0xFFF, ri & 0xFFF,
                   0, 0, 0, 0, 0)
    if form == NH_SMALL:
        r.buf_off, = struct.unpack_from("!Q", b, 12)
        r.msg_id, r.length = 0, second & 0x3FFF
    elif form == NH_MEDIUM:
        slot, r.initiator, r.match = struct.unpack_from("!QIQ", b, 12)
        r.msg_id, r.length = 0, second & 0x3FFF
        if flags & S_HD:
            r.data = slot
        else:
            r.buf_off = slot
    else:
        r.buf_off, r.initiator, r.match = struct.unpack_from("!QIQ", b, 12)
        if flags & S_SOM:
            r.data, = struct.unpack_from("!Q", b, 32)
        else:
            word, r.msg_off = struct.unpack_from("!II", b, 32)
            r.pay_len = word & 0x3FFF
        r.length, = struct.unpack_from("!I", b, 40)
    body = b[n:]
    if r.opcode in (ATOMIC, FETCHING_ATOMIC, TSEND_ATOMIC, TSEND_FETCH_ATOMIC):
        n = 36 if body and body[0] in TWO_OPERANDS else 4
        if len(body) < n:
            raise Malformed("short atomic header")
        r.ext, body = bytes(body[:n]), body[n:]
    if r.opcode in RENDEZVOUS and r.som:
        if form != NH_STD or len(body) < 24:
            raise Malformed("short rendezvous header")
        r.ext, body = bytes(body[:24]), body[24:]
    if r.som or form != NH_STD:
        # The length is implied: what is there, at most the message (UE 3.4, payload_length).
        body = body[:r.length]
        r.pay_len = len(body)
    return r, body


@dataclass
class SesResponse:
    """A SES response: 12 bytes without data, 20 with, 12 with data in the small form (UE 3.4)."""
    opcode: int
    rc: int
    msg_id: int
    gen: int = 0
    job: int = 0
    modified: int = 0
    list: int = EXPECTED
    form: int = NH_RSP
    pay_len: int = 0
    msg_off: int = 0
    read_msg_id: int = 0
    psn: int = 0
    data: bytes = b""  # follows the header, which pack gives

    def pack(self):
        head = struct.pack("!BB", self.list << 6 | self.opcode, self.rc)
        if self.form == NH_RSP:
            return head + struct.pack("!HII", self.msg_id, self.gen << 24 | self.job, self.modified)
        if self.form == NH_RSP_DATA:
            return head + struct.pack("!HIHHII", self.msg_id, self.job, self.read_msg_id, self.pay_len,
                                      self.modified, self.msg_off)
        return head + struct.pack("!HII", self.pay_len, self.job, self.psn)


def parse_ses_response(form, b):
    """Decodes a SES response at the front of b; returns it and its data."""
    n = {NH_RSP: 12, NH_RSP_DATA: 20, NH_RSP_DATA_SMALL: 12}.get(form)
    if n is None:
        raise Malformed("next_hdr %d is no response" % form)
    if len(b) < n:
        raise Malformed("short SES response")
    first, rc, second, genjob, last = struct.unpack_from("!BBHII", b)
    r = SesResponse(first & 0x3F, rc & 0x3F, second, job=genjob & 0xFFFFFF, list=first >> 6, form=form)
    if (r.opcode == RESPONSE_W_DATA) != (form != NH_RSP):
        raise Malformed("response opcode and next_hdr do not fit")
    if form == NH_RSP:
        r.gen, r.modified = genjob >> 24, last
    elif form == NH_RSP_DATA:
        r.read_msg_id, r.pay_len = last >> 16, last & 0x3FFF
        r.modified, r.msg_off = struct.unpack_from("!II", b, 12)
    else:
        r.msg_id, r.pay_len, r.psn = 0, second & 0x3FFF, last
    return r, b[n:n + r.pay_len]
