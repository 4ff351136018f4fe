"""What stands around a PDS packet: addresses, UDP header, CRC trailer, and to which port it goes.

Follows UE 3.5.10.1 (entropy: over UDP the source port is the entropy value, the destination port is
4793, the checksum is zero and counts as zero) and the CRC trailer of UE 3.5: CRC-32C from the IP
source address to the last byte of the payload, most significant byte first.
"""
import ipaddress
import struct

import crcmod.predefined

PORT = 4793
crc32c = crcmod.predefined.mkCrcFun("crc-32c")

STANDARD, SYMMETRIC = "standard", "symmetric"


def packed(ip):
    """The bytes of an address that was given as text."""
    return ipaddress.ip_address(ip).packed


def udp_outer(src, dst, sport, dport, length):
    """The bytes of a UDP packet that CRC and ICV cover in front of its payload.

    src and dst are packed addresses, length is that of the UDP payload with its trailer.
    """
    return src + dst + struct.pack("!HHHH", sport, dport, 8 + length, 0)


def with_crc(outer, body):
    """body and its CRC; outer must count the four bytes of the CRC."""
    return body + struct.pack("!I", crc32c(body, crc32c(outer)))


def without_crc(outer, data):
    """data without its CRC, or None if that is wrong."""
    if len(data) < 4:
        return None
    body = data[:-4]
    if struct.pack("!I", crc32c(body, crc32c(outer))) != data[-4:]:
        return None
    return body


class Path:
    """From which port of ours to which port of whom a packet goes, or came."""
    __slots__ = ("local_port", "ip", "port")

    def __init__(self, local_port, ip, port):
        self.local_port, self.ip, self.port = local_port, ip, port

    def __repr__(self):
        return "%d>%s:%d" % (self.local_port, self.ip, self.port)


def answer(encap, arrived):
    """The path of an ACK or NACK of a packet that came by the path arrived.

    Standard: an answer goes to port 4793 too, and its source port repeats the entropy value of the
    packet. Symmetric: it goes to the port that the packet came from, from the port that it came to.
    """
    if encap == STANDARD:
        return Path(arrived.port, arrived.ip, PORT)
    return Path(arrived.local_port, arrived.ip, arrived.port)
