"""The security header, keys and sealing: TSS in cluster mode (UE 3.7).

A packet is AES-256-GCM sealed under a key that is derived from the key of the secure domain for each
source (and epoch, and piece of the packet counter where rekeying is on). Over UDP the authenticated
bytes begin with the IP source address (UE 3.7.11.1.3): addresses, UDP header with checksum zero,
security header.
"""
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import cmac
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TYPE = 1
SP, AN = 0x04000000, 0x01000000
ICV = 16


def kdf(key, label, context):
    """32 bytes of key and 12 of IV mask: AES-CMAC in counter mode, 352 bits asked for."""
    out = b""
    for i in (1, 2, 3):
        mac = cmac.CMAC(algorithms.AES(key))
        mac.update(bytes([i]) + label + b"\0" + context + struct.pack("!H", 352))
        out += mac.finalize()
    return out[:32], out[32:44]


def cluster_context(epoch, rekey, source, ssi):
    """The context of the KDF. source is the packed IP address, ssi None or a number."""
    if len(source) == 16:
        return bytes(4) + struct.pack("!HI", epoch, rekey) + source
    return struct.pack("!HI", epoch, rekey) + (source if ssi is None else struct.pack("!I", ssi))


def base_iv(source, sdi, ssi, epoch, tsc):
    if ssi is not None:
        s = struct.pack("!I", ssi)
    else:
        s = source if len(source) == 4 else struct.pack("!I", sdi)
    return s + struct.pack("!H", epoch) + tsc.to_bytes(6, "big")


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


class Refused(Exception):
    """A packet that is dropped without an answer; the text is the counter."""


class Header:
    """The security header: 12 bytes, 16 with an SSI."""

    def __init__(self, an, sdi, ssi, epoch, tsc):
        self.an, self.sdi, self.ssi, self.epoch, self.tsc = an, sdi, ssi, epoch, tsc

    def pack(self):
        word = TYPE << 27 | (SP if self.ssi is not None else 0) | (AN if self.an else 0) | self.sdi
        b = struct.pack("!I", word)
        if self.ssi is not None:
            b += struct.pack("!I", self.ssi)
        return b + struct.pack("!H", self.epoch) + self.tsc.to_bytes(6, "big")

    @staticmethod
    def parse(data):
        if len(data) < 12:
            raise Refused("short security header")
        word, = struct.unpack_from("!I", data)
        at, ssi = 4, None
        if word & SP:
            ssi, = struct.unpack_from("!I", data, 4)
            at = 8
        if len(data) < at + 8 + ICV:
            raise Refused("short sealed packet")
        epoch, = struct.unpack_from("!H", data, at)
        tsc = int.from_bytes(data[at + 2:at + 8], "big")
        return Header(1 if word & AN else 0, word & 0xFFFFFF, ssi, epoch, tsc), at + 8


class Domain:
    """A secure domain in cluster mode: its keys by association number, and our packet counter."""

    def __init__(self, keys, sdi, ssi=None, an=0, epoch=0, mask=0, shift=0, tsc=0):
        self.keys = dict(keys)  # AN: 32 bytes
        self.sdi, self.ssi, self.an, self.epoch = sdi, ssi, an, epoch
        self.mask, self.shift, self.tsc = mask, shift, tsc
        self.derived = {}

    def key(self, an, epoch, tsc, source, ssi):
        rekey = (tsc & self.mask) >> self.shift
        name = (an, epoch, rekey, source, ssi)
        if name not in self.derived:
            if an not in self.keys:
                raise Refused("no key for this association number")
            if len(self.derived) > 4096:
                self.derived.clear()
            key, mask = kdf(self.keys[an], b"U1", cluster_context(epoch, rekey, source, ssi))
            self.derived[name] = AESGCM(key), mask
        return self.derived[name]

    def overhead(self):
        return (12 if self.ssi is None else 16) + ICV

    def seal(self, outer, source, plain):
        """The sealed packet. outer are the covered bytes in front; each packet takes a new counter."""
        tsc, self.tsc = self.tsc, self.tsc + 1
        head = Header(self.an, self.sdi, self.ssi, self.epoch, tsc).pack()
        aes, mask = self.key(self.an, self.epoch, tsc, source, self.ssi)
        iv = xor(base_iv(source, self.sdi, self.ssi, self.epoch, tsc), mask)
        return head + aes.encrypt(iv, bytes(plain), outer + head)

    def open(self, outer, source, data):
        """The plain packet of a sealed one; Refused if it is not of this domain or was changed."""
        h, at = Header.parse(data)
        if h.sdi != self.sdi:
            raise Refused("another secure domain")
        if self.ssi is not None and h.ssi is None:
            raise Refused("no SSI")
        aes, mask = self.key(h.an, h.epoch, h.tsc, source, h.ssi)
        iv = xor(base_iv(source, h.sdi, h.ssi, h.epoch, h.tsc), mask)
        try:
            return aes.decrypt(iv, bytes(data[at:]), outer + bytes(data[:at]))
        except InvalidTag:
            raise Refused("authentication")
