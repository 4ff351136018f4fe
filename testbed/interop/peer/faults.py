"""A bad network in front of this peer: losses, copies and delays on what it sends and receives, and a
most length of packets.

Everything comes from the seed, so that a run can be repeated.
"""
import heapq
import random


class Faults:
    def __init__(self, seed=1, loss=0.0, dup=0.0, reorder=0.0, delay=0.003, longest=0):
        """loss, dup and reorder are probabilities of a packet, delay is the most seconds that a
        reordered packet or a copy comes late. Packets of more than longest bytes behind the UDP
        header do not pass, if it is not 0."""
        self.rng = random.Random(seed)
        self.loss, self.dup, self.reorder, self.delay, self.longest = loss, dup, reorder, delay, longest
        self.held, self.order = [], 0
        self.lost = self.copied = self.late = self.long = 0

    def clean(self):
        return not (self.loss or self.dup or self.reorder or self.longest)

    def put(self, now, packet):
        """Hands a packet over; returns what goes on at once, the rest comes by due."""
        if self.clean():
            return (packet,)
        if self.longest and max(len(b) for b in packet if isinstance(b, (bytes, bytearray, memoryview))) > self.longest:
            self.long += 1
            return ()
        if self.rng.random() < self.loss:
            self.lost += 1
            return ()
        out = []
        if self.rng.random() < self.dup:
            self.copied += 1
            self.hold(now, packet)
        if self.rng.random() < self.reorder:
            self.late += 1
            self.hold(now, packet)
        else:
            out.append(packet)
        return out

    def hold(self, now, packet):
        self.order += 1
        heapq.heappush(self.held, (now + self.rng.random() * self.delay, self.order, packet))

    def due(self, now):
        """The held packets whose time has come."""
        out = []
        while self.held and self.held[0][0] <= now:
            out.append(heapq.heappop(self.held)[2])
        return out

    def next(self):
        return self.held[0][0] if self.held else None
