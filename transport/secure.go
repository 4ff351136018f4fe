package transport

import (
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// A packet of a secured FEP is a security header, the encrypted packet, and an ICV. It is
// sealed where a packet in clear gets its CRC, when it no longer changes. A resend is
// encoded and sealed anew, so no TSC is used twice.

// canSeal reports whether a whole train may be sealed now. If not, it notes since when
// packets wait for a key.
func (f *FEP) canSeal(now time.Duration) bool {
	if f.sec.Ready() && f.sec.Left() >= dgram.MaxSegments {
		f.todo.keyless = 0
		return true
	}
	if f.todo.keyless == 0 && (f.todo.ready.len() > 0 || f.todo.flush || f.loose()) {
		f.todo.keyless = now
	}
	return false
}

// secHeader appends the security header of the next packet.
func (f *FEP) secHeader(b []byte) []byte {
	b, ok := f.sec.Begin(b)
	if !ok {
		panic("BUG: transport: no frame left under the key in the middle of a train")
	}
	return b
}

// failKeyless ends every operation after SuspectTimeout without a key to seal with (F33).
func (f *FEP) failKeyless(now time.Duration) {
	if f.canSeal(now) {
		return
	}
	f.todo.keyless = 0
	f.pds.FailAll(now, pds.WhyNoKey)
	f.heed()
	for _, h := range f.todo.moveLater {
		f.ses.Abandon(h, ses.NoKey)
	}
	f.todo.moveLater = f.todo.moveLater[:0]
	f.failWaiting(NoPeer, ses.NoKey)
	f.failIdem(NoPeer, ses.NoKey)
	for f.grams.len() > 0 {
		f.ses.Abandon(f.grams.pop(), ses.NoKey)
	}
}

// openPacket verifies and decrypts a packet in place. It returns nil if it dropped the
// packet.
func (f *FEP) openPacket(d *dgram.Datagram, b []byte) []byte {
	if t := wire.Type(b[0] >> 3); t != wire.TypeTSS {
		if f.cfg.AcceptClearStart && (t == wire.TypeNack || t == wire.TypeNackCCX) {
			return f.startInClear(d, b)
		}
		f.dropFrom(DropClear)
		return nil
	}
	outer := f.rx.outer.aad(len(b))
	var main []byte // nil where no packet that goes aside arrives
	if f.rx.outer.path != 0 {
		main = f.mainOuter(d, len(b))
	}
	plain, who, aside, why := f.sec.OpenEither(f.now, b, outer, main, d.Remote.Addr())
	if why != tss.Good {
		if f.cut(d) {
			// A sealed packet that was trimmed cannot be read. It will be sent again.
			f.stats.RxTrimmed++
			f.drop(DropTrimmed)
			return nil
		}
		f.dropFrom(tssDrop(why))
		return nil
	}
	if len(plain) < wire.ReqLen {
		f.drop(DropShort)
		return nil
	}
	if aside && !goesAside(plain) {
		f.dropFrom(DropAuth)
		return nil
	}
	f.rx.in.Who = uint64(who)
	if f.notes != nil {
		f.notes.open = plain
	}
	return plain
}

// startInClear accepts a NACK 0x17 in clear whose CRC is good (S-SEC-07), and drops any
// other packet.
func (f *FEP) startInClear(d *dgram.Datagram, b []byte) []byte {
	if !wire.VerifyCRC(b, f.rx.outer.prefix.CRC(len(b))) {
		f.dropFrom(DropCRC)
		return nil
	}
	n, _, err := wire.ParseNack(b[:len(b)-wire.CRCLen])
	if err != nil || n.Code != wire.NackNewStartPSN {
		f.dropFrom(DropClear)
		return nil
	}
	f.rx.in.Who = 0
	return b[:len(b)-wire.CRCLen]
}

// tssDrop is the drop reason of a packet that did not open.
func tssDrop(why tss.Drop) DropReason {
	switch why {
	case tss.DropShort:
		return DropShort
	case tss.DropSDI, tss.DropNoSSI, tss.DropSSI:
		return DropSDI
	case tss.DropAN:
		return DropKey
	case tss.DropLate:
		return DropEpoch
	case tss.DropSource:
		return DropBinding
	case tss.DropFull:
		return DropLimit
	}
	return DropAuth
}

// LimitMTU limits the payload of packets to a peer to mtu bytes, the payload MTU that the
// peer named: 1024, 2048, 4096 or 8192.
func (f *FEP) LimitMTU(id PeerID, mtu int) {
	if id != NoPeer && int(id) < len(f.peers) && mtu >= 1024 {
		p := &f.peers[id]
		p.mtu = uint16(min(int(p.mtu), mtu))
		if p.search != nil {
			p.search.most = min(p.search.most, uint16(mtu))
		}
	}
}
