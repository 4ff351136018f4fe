package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/wire"
)

// A keyring opens the packets of a cluster with its key file. The nil keyring opens
// nothing.
type keyring struct {
	keys [2]*tss.Key // by association number
	doms map[domainID][]*tss.Domain
	buf  []byte
}

// A domainID names the secure domain of a packet. The packets carry it; the key file does
// not have it.
type domainID struct {
	sdi  uint32
	ssi  bool
	ipv6 bool
}

// maxDomains bounds the secure domains of a capture that are tried.
const maxDomains = 64

const (
	keyHeader = "uetkit-cluster-key 1"
	// maxKeyFile bounds a key file in bytes: two keys and comments.
	maxKeyFile = 64 << 10
)

// loadKeys reads a cluster key file as uet.WriteClusterKey writes it. Its errors never show
// a key.
func loadKeys(name string) (*keyring, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r, err := parseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

func parseKeys(b []byte) (*keyring, error) {
	if len(b) > maxKeyFile {
		return nil, fmt.Errorf("%d bytes are no key file", len(b))
	}
	r := &keyring{doms: map[domainID][]*tss.Domain{}}
	header := false
	n, keys := 0, 0
	for line := range bytes.Lines(b) {
		n++
		f := strings.Fields(string(line))
		switch {
		case len(f) == 0 || strings.HasPrefix(f[0], "#"):
			continue
		case !header:
			if strings.Join(f, " ") != keyHeader {
				return nil, fmt.Errorf("line %d: a key file begins with %q", n, keyHeader)
			}
			header = true
			continue
		case len(f) != 3 || f[0] != "key" && f[0] != "next":
			return nil, fmt.Errorf("line %d: write \"key GENERATION KEY\", the key as 64 hexadecimal digits", n)
		}
		gen, err := strconv.ParseUint(f[1], 10, 32)
		if err != nil || gen == 0 {
			return nil, fmt.Errorf("line %d: the generation is a number from 1", n)
		}
		raw, err := hex.DecodeString(f[2])
		if err != nil || len(raw) != tss.KeyLen {
			return nil, fmt.Errorf("line %d: the key of generation %d has %d characters; 64 hexadecimal digits are needed", n, gen, len(f[2]))
		}
		an := gen & 1
		if r.keys[an] != nil {
			return nil, fmt.Errorf("line %d: a key of an odd and one of an even generation are all there can be", n)
		}
		k := tss.Key(raw)
		r.keys[an] = &k
		keys++
	}
	switch {
	case !header:
		return nil, fmt.Errorf("empty; a key file begins with %q", keyHeader)
	case keys == 0:
		return nil, errors.New("no key; add a line \"key 1 KEY\", the key as 64 hexadecimal digits")
	}
	return r, nil
}

// knows reports whether the keyring has a key that a packet may be sealed with.
func (r *keyring) knows(t *wire.TSS) bool { return r != nil && r.keys[t.AN&1] != nil }

// open verifies and decrypts a whole packet of a datagram and does not change the datagram.
// The plain text belongs to the caller.
func (r *keyring) open(d *datagram, pkt []byte) ([]byte, bool) {
	t, _, err := wire.ParseTSS(pkt)
	if err != nil || !r.knows(&t) {
		return nil, false
	}
	var ob [wire.OuterMax]byte
	outer := d.outer(&ob, len(pkt))
	for _, dom := range r.domains(domainID{t.SDI, t.SP, d.src.Addr().Is6()}) {
		r.buf = append(r.buf[:0], pkt...)
		if plain, _, why := dom.Open(1, r.buf, outer, d.src.Addr()); why == tss.Good {
			return append([]byte(nil), plain...), true
		}
	}
	return nil, false
}

// domains returns the secure domains that may open packets of an id: one with the keys as
// given, and one with the keys that the UEC reference provider derives anew every 256
// packets (S-KEY-05).
func (r *keyring) domains(id domainID) []*tss.Domain {
	if doms, ok := r.doms[id]; ok || len(r.doms) >= maxDomains {
		return doms
	}
	local := netip.AddrFrom4([4]byte{192, 0, 2, 1}) // nobody's: it sends nothing
	if id.ipv6 {
		local = netip.MustParseAddr("2001:db8::1")
	}
	var doms []*tss.Domain
	for _, cfg := range [...]tss.Config{
		{SDI: id.sdi, Mode: tss.Cluster, UseSSI: id.ssi, Local: local},
		{SDI: id.sdi, Mode: tss.Cluster, UseSSI: id.ssi, Local: local, RekeyMask: 0xff00, RekeyShift: 8},
	} {
		dom, err := tss.New(cfg)
		if err != nil {
			continue
		}
		for an, k := range r.keys {
			if k != nil && dom.Install(uint8(an), *k) != nil {
				dom = nil
				break
			}
		}
		if dom != nil {
			doms = append(doms, dom)
		}
	}
	r.doms[id] = doms
	return doms
}
