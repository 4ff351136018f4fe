"""A bad network in front of this peer: losses, copies and delays on what it sends and receives.

Everything comes from the seed, so that a run can be repeated.
"""
import heapq
import random


class Faults:
    def __init__(self, seed=1, loss=0.0, dup=0.0, reorder=0.0, delay=0.003):
        """loss, dup and reorder are probabilities of a packet, delay is the most seconds that a
        reordered packet or a copy comes late."""
        self.rng = random.Random(seed)
        self.loss, self.dup, self.reorder, self.delay = loss, dup, reorder, delay
        self.held, self.order = [], 0
        self.lost = self.copied = self.late = 0

    def clean(self):
        return not (self.loss or self.dup or self.reorder)

    def put(self, now, packet):
        """Hands a packet over; returns what goes on at once, the rest comes by due."""
        if self.clean():
            return (packet,)
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
