"""The UDP sockets of an endpoint.

Standard: one socket on port 4793 receives everything, and a socket for each entropy value sends from
that source port. Symmetric: the endpoint's ports send and receive. The UDP checksum is zero on send
and not looked at on receipt, over IPv4 and IPv6 (UE 3.5.10.1).
"""
import socket

import outer

SO_NO_CHECK, UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 11, 101, 102
IP_RECVTOS, IPV6_RECVTCLASS, IPV6_TCLASS = 13, 66, 67
ECT0, CE = 2, 3
MOST_EVS = 512


class Sockets:
    def __init__(self, cfg, checksum=False, need=False):
        self.v6 = ":" in cfg.ip
        self.ip, self.standard, self.checksum, self.need = cfg.ip, cfg.encap == outer.STANDARD, checksum, need
        self.by_port = {}
        self.receive_on = []
        first = self.open(outer.PORT if self.standard else cfg.port)
        cfg.port = first.getsockname()[1]
        self.receive_on.append(first)
        for i, port in enumerate(cfg.evs):
            s = self.open(port)
            cfg.evs[i] = s.getsockname()[1]
            if not self.standard:
                self.receive_on.append(s)

    def open(self, port):
        if port in self.by_port:
            return self.by_port[port]
        s = socket.socket(socket.AF_INET6 if self.v6 else socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if self.v6:
            s.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 0 if self.need else 1)
            s.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_TX, 0 if self.checksum else 1)
            s.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
            s.setsockopt(socket.IPPROTO_IPV6, IPV6_TCLASS, ECT0)
        else:
            s.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 0 if self.checksum else 1)
            s.setsockopt(socket.IPPROTO_IP, IP_RECVTOS, 1)
            s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
        s.setblocking(False)
        s.bind((self.ip, port))
        self.by_port[s.getsockname()[1]] = s
        return s

    def need_checksum(self, need):
        """Whether the system drops what comes over IPv6 with checksum zero."""
        for s in self.by_port.values():
            s.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 0 if need else 1)

    def send(self, path, data):
        """Sends one datagram. False: the system had no room, or no such port; that is a loss."""
        s = self.by_port.get(path.local_port)
        try:
            if s is None:  # the echo of an entropy value that was not seen before
                if len(self.by_port) > MOST_EVS:
                    old = next(p for p, x in self.by_port.items() if x not in self.receive_on)
                    self.by_port.pop(old).close()
                s = self.open(path.local_port)
            s.sendto(data, (path.ip, path.port))
            return True
        except OSError:
            return False

    def receive(self, s):
        """One datagram: its bytes, path and whether it was marked; None if there is no more."""
        try:
            data, anc, _, src = s.recvmsg(65535, 64)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:  # an ICMP error of an earlier packet
            return b"", None, False
        tos = 0
        for _, kind, value in anc:
            if kind in (IP_RECVTOS, socket.IP_TOS, IPV6_TCLASS):
                tos = value[0]
        return data, outer.Path(s.getsockname()[1], src[0], src[1]), tos & 3 == CE

    def close(self):
        for s in self.by_port.values():
            s.close()
