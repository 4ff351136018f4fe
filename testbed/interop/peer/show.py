"""Prints a file of packets that "set" with "dump" made, a line each, decoded.

    python3 show.py FILE
"""
import sys

from pds import NAMES
from wire import *

CONTROLS = ("NOOP", "ACK_REQ", "CLEAR", "CLEAR_REQ", "CLOSE", "CLOSE_REQ", "PROBE", "CREDIT", "CREDIT_REQ", "NEGOTIATION")


def flags(v, names):
    return "+".join(n for m, n in names if v & m) or "-"


def response(form, b):
    r, _ = parse_ses_response(form, b)
    s = "%s rc=%#x msg=%d gen=%d len=%d%s" % (("DEFAULT", "RESPONSE", "W_DATA", "NO_RESPONSE")[r.opcode & 3], r.rc,
                                              r.msg_id, r.gen, r.modified, " OVERFLOW" if r.list == OVERFLOW else "")
    if form == NH_RSP_DATA:
        return s + " of %d: %d+%d" % (r.read_msg_id, r.msg_off, r.pay_len)
    return s + (" of PSN %d: %d" % (r.psn, r.pay_len) if form == NH_RSP_DATA_SMALL else "")


def text(b):
    h, rest = parse_pds(b)
    if isinstance(h, Request):
        s = "%s %s psn=%d clear=%d %d>%s%d" % (
            "ROD" if h.ordered else "RUD", flags(h.flags, ((F_RETX, "RETX"), (F_AR, "AR"), (F_SYN, "SYN"))), h.psn,
            add(h.psn, h.clear_off), h.spdcid, "+" if h.syn else "", h.dpdcid)
        if h.next_hdr in (NH_SMALL, NH_MEDIUM, NH_STD):
            r, _ = parse_ses_request(h.next_hdr, rest)
            s += " | op=%#x %s msg=%d gen=%d match=%#x data=%d off=%d+%d of %d" % (
                r.opcode, flags(r.flags, ((S_SOM, "SOM"), (S_EOM, "EOM"), (S_HD, "HD"), (S_DC, "DC"))), r.msg_id, r.gen,
                r.match, r.data, r.msg_off, r.pay_len, r.length)
        elif h.next_hdr in (NH_RSP_DATA, NH_RSP_DATA_SMALL):
            s += " | " + response(h.next_hdr, rest)
        return s
    if isinstance(h, Ack):
        s = "ACK%s %s psn=%d cack=%d %d>%d" % (
            ("", "_CC", "_CCX")[h.kind - ACK],
            flags(h.flags, ((A_M, "M"), (A_RETX, "RETX"), (A_P, "P"), (2, "CLEAR"), (4, "CLOSE"))), h.psn, h.cack,
            h.spdcid, h.dpdcid)
        if h.kind != ACK:
            s += " mpr=%d sack=%d:%x" % (h.mpr, add(h.cack, h.sack_off), h.sack)
        return s + (" | " + response(h.next_hdr, rest) if h.next_hdr else "")
    if isinstance(h, Nack):
        return "NACK %s psn=%d %d>%d payload=%d" % (NAMES.get(h.code, h.code), h.psn, h.spdcid, h.dpdcid, h.payload)
    return "%s %s psn=%d %d>%d payload=%d opaque=%d %s" % (
        CONTROLS[h.ctl], flags(h.flags, ((F_RETX, "RETX"), (F_AR, "AR"), (F_SYN, "SYN"))), h.psn, h.spdcid, h.dpdcid,
        h.payload, h.opaque, h.tail.hex())


for line in open(sys.argv[1]):
    when, way, here, there, packet = line.split()
    print(when, way, here.rsplit(":", 1)[1], "<" if way == "got" else ">", there.rsplit(":", 1)[1], text(bytes.fromhex(packet)))
