// Package tss is the transport security sublayer: it seals the packets that a FEP sends and
// opens those that it receives (UE 3.7; docs/protocol/tss.md has the rules).
//
// A Domain is one sender's part in one secure domain (SDI). It has two keys, told apart by the
// association number (AN), the transmit counter (TSC), and what is remembered of the sources
// that send to it. It has no clock and no randomness, and it negotiates with no peer: keys,
// times and first values are arguments, and keys come from connection management.
//
// A Domain serves one caller at a time. Two Domains must never send under the same key as the
// same source: the TSC lives in the Domain, and a value used twice reveals both packets (T24).
// A Domain prevents what it can see of that: a key is installed once, a packet that was begun
// is sealed once.
//
// A Domain does not know whether a packet arrived before. The PSNs of a PDC tell that, and
// Fresh for packets without a PDC.
package tss

import (
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A Mode is which key a packet is sealed with (S-KEY-02). It is a property of the domain and
// not on the wire.
type Mode uint8

const (
	// Direct means the key of the domain itself.
	Direct Mode = iota
	// Cluster means a key for each source, derived from the key of the domain.
	Cluster
	// Server and Client mean a key for each client, which the server derives and the client is
	// given. The two directions are two sources, so that they share no IV; the reference gets
	// this wrong (S-KEY-06). A Domain of a server is for one client.
	Server
	Client
	numModes
)

func (m Mode) String() string {
	switch m {
	case Direct:
		return "direct"
	case Cluster:
		return "cluster"
	case Server:
		return "server"
	case Client:
		return "client"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// Config describes a Domain. Zero fields have the stated defaults.
type Config struct {
	SDI  uint32 // secure domain identifier, 24 bits
	Mode Mode

	// UseSSI puts the SSI into every packet, and accepts no packet without one. It is needed
	// over IPv6 in direct mode, and in server mode. Without it the address is the source: then
	// only one Domain may send from that address under a key.
	UseSSI bool
	// SSI is that of this sender. No two senders of a domain may share one.
	SSI uint32
	// PeerSSI, if not 0, is the only source accepted. It is needed in server mode. It must
	// differ from SSI, or the two directions would share IVs.
	PeerSSI uint32
	// Local is the address that packets are sent from.
	Local netip.Addr
	// Peer is the client's address. It is needed only in server mode over IPv6, whose keys
	// depend on it.
	Peer netip.Addr

	// Epoch is that of this sender until the first Use gives another; packets are late compared
	// to it. TSC is the least that the first Use may begin with: a sender that returns to an
	// epoch begins above all that it sent in it.
	Epoch uint16
	TSC   uint64
	// MaxFrames is how many packets one key may seal; default 2^40 (T24).
	MaxFrames uint64
	// RekeyMask and RekeyShift: in cluster mode, (TSC & mask) >> shift goes into the
	// derivation, so the key changes as the TSC rises. 0 means off. Each change costs both
	// sides a derivation.
	RekeyMask  uint64
	RekeyShift uint8

	// EpochLifetime is how many epochs older than our own a packet may be, less than 2^15. 0
	// accepts all, which is needed where epochs are drawn at random.
	EpochLifetime uint16
	// OldKeyLife is how long after Use the other key still opens packets; default 4 s (F33).
	OldKeyLife time.Duration
	// MaxSources bounds the sources remembered for each of the two keys; default 16,384. One
	// takes about 1 KiB, 1.7 with RekeyMask, 0.25 in direct and client mode, and 1.1 KiB more
	// once Fresh was asked about it: with the default and both keys at most 70 MiB, without
	// RekeyMask. At the bound a source without replay window is forgotten for the new one; its
	// key is derived again when it next sends. If there is none, packets of new sources are
	// dropped as DropFull until a new key comes. Only holders of the key can cause that.
	MaxSources int
	// MaxAuthFailures is how many packets may fail to verify under one key before Worn reports
	// it; default 2^36 (T25). It has no other effect (T41).
	MaxAuthFailures uint64
}

// Defaults of Config.
const (
	defaultMaxFrames       = 1 << 40
	defaultOldKeyLife      = 4 * time.Second
	defaultMaxSources      = 1 << 14
	defaultMaxAuthFailures = 1 << 36
)

// maxKeys is how many keys a Domain may have in its life; it remembers all of them. With a key
// an hour that is 7 years. After that a new Domain is needed, with another SSI or epoch.
const maxKeys = 1 << 16

const maxSDI = 1<<24 - 1

// An Error is an error of New, Install or Use.
type Error string

func (e Error) Error() string { return "tss: " + string(e) }

// Errors of New.
const (
	ErrSDI        Error = "SDI has more than 24 bits"
	ErrMode       Error = "no such mode"
	ErrLocal      Error = "the local address is no address to send from"
	ErrPeer       Error = "PeerSSI without UseSSI, or no address of a client over IPv6"
	ErrNeedsSSI   Error = "direct mode over IPv6 and server mode need an SSI: IVs would repeat"
	ErrDirections Error = "both directions would be one source: server mode needs PeerSSI, which is never the own SSI"
	ErrRekey      Error = "rekey by TSC is for cluster mode, with a mask of 48 bits and a result of 32"
	ErrBound      Error = "a bound is negative or too large"
)

// Errors of Install and Use.
const (
	ErrAN       Error = "association number is 0 or 1"
	ErrSending  Error = "that association number is in use for sending"
	ErrKeyUsed  Error = "this key was used before: its counter would start again"
	ErrKeys     Error = "too many keys for the life of one domain"
	ErrNoKey    Error = "no key under that association number"
	ErrTSC      Error = "TSC is past its end, or before what was sent in this epoch"
	ErrNeedMask Error = "a client's key comes with an IV mask, and no other key does"
)

// A slot holds one of the two keys.
type slot struct {
	live  bool
	sent  bool          // it is or was the key to send with
	dying bool          // the key is forgotten at dies
	dies  time.Duration // by the caller's clock
	gen   uint64        // number of the slot's content

	mac  cmac        // cluster and server mode
	aead cipher.AEAD // direct and client mode
	mask [maskLen]byte

	own      source // this Domain as a source, for sending
	peers    sources
	recent   *source // the source of the last packet accepted
	failures uint64
}

// A Domain is one sender's part in a secure domain.
type Domain struct {
	cfg   Config
	slots [2]slot
	send  int // slot to send with, or -1
	gen   uint64
	had   []uint64 // fingerprints of all keys ever installed
	stats Stats

	head  []byte // the part of the security header that all sent packets share
	epoch uint16 // epoch of this sender
	begun bool   // Use was called
	next  uint64 // TSC of the next packet
	end   uint64 // TSCs below it may be used
	seal  sealed

	opened    *source // source of the packet that Open accepted last, or nil
	openedTSC uint64
	trial     trial

	kdf   kdf
	iv    [12]byte
	aad   []byte
	spare []byte // the packet that OpenEither opens
}

// New makes a Domain without keys. It returns an error if cfg contradicts itself or would let
// an IV repeat.
func New(cfg Config) (*Domain, error) {
	cfg.Local, cfg.Peer = plainAddr(cfg.Local), plainAddr(cfg.Peer)
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.MaxFrames == 0 {
		cfg.MaxFrames = defaultMaxFrames
	}
	if cfg.OldKeyLife == 0 {
		cfg.OldKeyLife = defaultOldKeyLife
	}
	if cfg.MaxSources == 0 {
		cfg.MaxSources = defaultMaxSources
	}
	if cfg.MaxAuthFailures == 0 {
		cfg.MaxAuthFailures = defaultMaxAuthFailures
	}
	return &Domain{cfg: cfg, send: -1, epoch: cfg.Epoch, aad: make([]byte, 0, 128)}, nil
}

func (c *Config) check() error {
	switch {
	case c.SDI > maxSDI:
		return ErrSDI
	case c.Mode >= numModes:
		return ErrMode
	case !c.Local.IsValid() || c.Local.IsUnspecified() || c.Local.IsMulticast():
		return ErrLocal
	case !c.UseSSI && (c.Mode == Server || c.Mode == Client || c.Mode == Direct && c.Local.Is6()):
		return ErrNeedsSSI
	case !c.UseSSI && (c.PeerSSI != 0 || c.SSI != 0):
		return ErrPeer
	case c.PeerSSI == 0 && (c.Mode == Server || c.Mode == Client), c.PeerSSI != 0 && c.PeerSSI == c.SSI:
		return ErrDirections
	case c.Mode == Server && c.Local.Is6() && !c.Peer.Is6():
		return ErrPeer
	case c.RekeyMask != 0 && c.Mode != Cluster, c.RekeyMask > wire.TSCMax, c.RekeyShift > 47, c.RekeyMask>>c.RekeyShift > 1<<32-1:
		return ErrRekey
	case c.OldKeyLife < 0, c.MaxSources < 0, c.EpochLifetime >= 1<<15, c.TSC > wire.TSCMax:
		return ErrBound
	}
	return nil
}

// Install makes the Domain accept packets of association number an that are sealed with k, and
// forgets the key that was there. It never accepts the same key twice (ErrKeyUsed), nor a key
// in the place of the one that seals (ErrSending). It may also return ErrAN, ErrKeys or
// ErrNeedMask.
//
// Both keys open packets. Use chooses the one that seals.
func (d *Domain) Install(an uint8, k Key) error {
	if d.cfg.Mode == Client {
		return ErrNeedMask
	}
	return d.install(an, k, [maskLen]byte{})
}

// InstallClient is Install in client mode, for a result of ClientKey.
func (d *Domain) InstallClient(an uint8, k Key, mask [maskLen]byte) error {
	if d.cfg.Mode != Client {
		return ErrNeedMask
	}
	return d.install(an, k, mask)
}

func (d *Domain) install(an uint8, k Key, mask [maskLen]byte) error {
	if an > 1 {
		return ErrAN
	}
	if d.send == int(an) {
		return ErrSending
	}
	h := sha256.Sum256(k[:])
	p := binary.BigEndian.Uint64(h[:])
	for _, q := range d.had {
		if p == q {
			return ErrKeyUsed
		}
	}
	if len(d.had) == maxKeys {
		return ErrKeys
	}
	d.had = append(d.had, p)
	d.kill(an)
	s := &d.slots[an]
	s.live, s.mask = true, mask
	if b := newBlock(k[:]); d.cfg.Mode == Direct || d.cfg.Mode == Client {
		s.aead = newAEAD(b)
	} else {
		s.mac.init(b)
	}
	return nil
}

// Use makes the Domain seal with the key of an, beginning with tsc in epoch. Under a new key
// both may be chosen freely; if the epoch stays the same, so does the Who. The other key opens
// packets for OldKeyLife more and is then forgotten, even if it was never used: so install the
// next key after Use, not before. A first TSC that is drawn at random should leave room for
// MaxFrames below 2^48.
//
// It returns ErrNoKey if an has no key, ErrKeyUsed if Use was called for that key before, and
// ErrTSC if tsc is out of range, or below Config.TSC at the first Use in its epoch.
func (d *Domain) Use(now time.Duration, an uint8, epoch uint16, tsc uint64) error {
	if an > 1 {
		return ErrAN
	}
	d.expire(now)
	s := &d.slots[an]
	switch {
	case !s.live:
		return ErrNoKey
	case s.sent:
		return ErrKeyUsed
	case tsc > wire.TSCMax, !d.begun && epoch == d.cfg.Epoch && tsc < d.cfg.TSC:
		return ErrTSC
	}
	if o := &d.slots[1-an]; o.live && !o.dying {
		o.dying, o.dies = true, now+d.cfg.OldKeyLife
	}
	s.sent, s.dying = true, false
	d.send, d.begun, d.epoch = int(an), true, epoch
	d.next = tsc
	d.end = tsc + min(d.cfg.MaxFrames, wire.TSCMax+1-tsc)
	d.seal.init()
	h := wire.TSS{SP: d.cfg.UseSSI, AN: an, SDI: d.cfg.SDI, SSI: d.cfg.SSI}
	d.head = h.Append(d.head[:0])[:h.Len()-8]
	s.own = source{sender: d.self(), addr: d.cfg.Local}
	return nil
}

// self returns the name of this Domain as a sender.
func (d *Domain) self() sender {
	if d.cfg.UseSSI {
		return sender{ssi: d.cfg.SSI, epoch: d.epoch}
	}
	return byAddr(d.cfg.Local, d.epoch)
}

func byAddr(a netip.Addr, epoch uint16) sender {
	if a.Is6() {
		return sender{addr: a, epoch: epoch}
	}
	b := a.As4()
	return sender{ssi: binary.BigEndian.Uint32(b[:]), epoch: epoch}
}

// Self returns the Who that peers see in packets of this Domain.
func (d *Domain) Self() Who {
	s := d.self()
	return s.who()
}

// Revoke forgets the key of an: nothing more is opened or sealed with it.
func (d *Domain) Revoke(an uint8) {
	if an < 2 {
		d.kill(an)
	}
}

// expire forgets the keys whose time is over.
func (d *Domain) expire(now time.Duration) {
	for an := range d.slots {
		if s := &d.slots[an]; s.dying && now >= s.dies {
			d.kill(uint8(an))
		}
	}
}

func (d *Domain) kill(an uint8) {
	s := &d.slots[an]
	d.stats.Sources -= len(s.peers.ring)
	for _, p := range s.peers.ring {
		if p.win != nil {
			d.stats.Windows--
		}
	}
	d.gen++
	*s = slot{gen: d.gen}
	d.opened, d.trial = nil, trial{}
	if d.send == int(an) {
		d.send = -1
	}
}

// Ready reports whether there is a key to send with and a TSC left under it.
func (d *Domain) Ready() bool { return d.send >= 0 && d.next < d.end }

// Left is how many packets the sealing key may still seal. The owner must bring a new key in
// time.
func (d *Domain) Left() uint64 {
	if d.send < 0 {
		return 0
	}
	return d.end - d.next
}

// Worn reports whether MaxAuthFailures packets failed to verify under one of the keys: the
// owner should bring new keys. Traffic goes on (T41).
func (d *Domain) Worn() bool {
	for an := range d.slots {
		if s := &d.slots[an]; s.live && s.failures >= d.cfg.MaxAuthFailures {
			return true
		}
	}
	return false
}

// HeaderLen is the length of the security header in bytes.
func (d *Domain) HeaderLen() int {
	if d.cfg.UseSSI {
		return wire.TSSSSILen
	}
	return wire.TSSLen
}

// Overhead is the number of bytes that security adds to a packet: header and ICV.
func (d *Domain) Overhead() int { return d.HeaderLen() + wire.ICVLen }

// Stats returns the counters.
func (d *Domain) Stats() Stats { return d.stats }

// String and Format tell the state of the domain, with every verb, and no key (T40).
func (d *Domain) String() string {
	if d == nil {
		return "TSS none"
	}
	return fmt.Sprintf("TSS sdi=%d %v send=%d epoch=%d next=%#x left=%d keys=%t,%t sources=%d",
		d.cfg.SDI, d.cfg.Mode, d.send, d.epoch, d.next, d.Left(), d.slots[0].live, d.slots[1].live, d.stats.Sources)
}

func (d *Domain) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(d.String())) }

// MarshalText makes encoders write what String returns.
func (d *Domain) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
