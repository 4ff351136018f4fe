package tss

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file tests packets that another implementation sealed. UETKIT_VECTORS names a folder of
// captures, with a README.md that gives the keys and what another decoder read in each packet,
// a line a packet under the name of its file, and tss-kat.json with known answers. Without the
// variable these tests do nothing.

// clearPackets names the packets in clear in captures under security: NACKs 0x17 of the
// reference. They are dropped (S-SEC-07, T7).
var clearPackets = []string{"refprov-tss-cluster-0rtt-stale.pcap 6", "refprov-tss-cluster-1rtt.pcap 4", "refprov-tss-cluster-1rtt.pcap 5", "refprov-tss-cluster-1rtt.pcap 6"}

func vectors(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("UETKIT_VECTORS")
	if dir == "" {
		t.Skip("UETKIT_VECTORS names no folder of captures")
	}
	return dir
}

var (
	reFile = regexp.MustCompile(`^### (refprov-tss-\S+\.pcap)`)
	reLine = regexp.MustCompile(`^(\d+) (A>B|B>A) .*TSS\[SP=(\d) AN=(\d) SDI=(\d+)(?: SSI=(\d+))? epoch=(\d+) tsc=(0x[0-9a-f]+)\] ICV ok \| (.*)$`)
	reKey  = regexp.MustCompile(`^\| (\d) \| ([0-9a-f]{64}) \|$`)
)

// A listed packet is what the README says of one packet.
type listed struct {
	header wire.TSS
	text   string // text of the headers inside
}

// readme reads the keys by AN and the secured packets by file and number.
func readme(t *testing.T, dir string) (keys map[string]string, packets map[string]listed) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	keys, packets = map[string]string{}, map[string]listed{}
	num := func(s string) uint64 {
		if s == "" {
			return 0
		}
		v, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	file := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			file = ""
		}
		if m := reFile.FindStringSubmatch(line); m != nil {
			file = m[1]
		} else if m := reKey.FindStringSubmatch(line); m != nil {
			keys[m[1]] = m[2]
		} else if m := reLine.FindStringSubmatch(line); m != nil && file != "" {
			packets[file+" "+m[1]] = listed{wire.TSS{
				SP: m[3] == "1", AN: uint8(num(m[4])), SDI: uint32(num(m[5])), SSI: uint32(num(m[6])), Epoch: uint16(num(m[7])), TSC: num(m[8]),
			}, m[9]}
		}
	}
	return keys, packets
}

// A native packet is one over IP without UDP.
type native struct {
	src, dst netip.Addr
	outer    []byte // addresses and entropy header
	pkt      []byte // from the security header to the end of the IP payload
}

// frames reads a classic pcap file in little-endian.
func frames(t *testing.T, path string) []native {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xa1b2c3d4 && binary.LittleEndian.Uint32(b) != 0xa1b23c4d {
		t.Fatalf("%s is no pcap file", path)
	}
	var fs []native
	for b = b[24:]; len(b) > 0; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		f := b[16+14 : 16+n] // behind the Ethernet header
		b = b[16+n:]
		var p native
		var addrs, body []byte
		switch f[0] >> 4 {
		case 4:
			addrs, body = f[12:20], f[int(f[0]&15)*4:binary.BigEndian.Uint16(f[2:])]
		case 6:
			addrs, body = f[8:40], f[40:40+int(binary.BigEndian.Uint16(f[4:]))]
		default:
			t.Fatalf("%s: a frame of no IP", path)
		}
		p.src, _ = netip.AddrFromSlice(addrs[:len(addrs)/2])
		p.dst, _ = netip.AddrFromSlice(addrs[len(addrs)/2:])
		p.outer = slices.Concat(addrs, body[:wire.EntropyLen])
		p.pkt = body[wire.EntropyLen:]
		fs = append(fs, p)
	}
	return fs
}

// vectorDomain returns a Domain at local, as file and header need it. ssi is its own.
func vectorDomain(t *testing.T, file string, h *wire.TSS, key Key, local netip.Addr, ssi uint32) *Domain {
	t.Helper()
	cfg := Config{SDI: h.SDI, Local: local, UseSSI: h.SP}
	if h.SP {
		cfg.SSI = ssi
	}
	switch {
	case strings.Contains(file, "-direct-"):
	case strings.Contains(file, "-cluster-"):
		cfg.Mode, cfg.RekeyMask, cfg.RekeyShift = Cluster, 0xff00, 8
	case strings.Contains(file, "-server-"):
		// Both ends of it have SSI 2 (S-KEY-06). No server and client here can be such a pair.
		// It is read by a Client that thinks it is the sender, and by one that thinks the
		// sender is its server.
		cfg.Mode, cfg.PeerSSI = Client, 2
		if ssi == 2 {
			cfg.PeerSSI = 1
		}
		d := domain(t, cfg)
		k, mask := ClientKey(key, h.Epoch, 2, local)
		if err := d.InstallClient(h.AN, k, mask); err != nil {
			t.Fatal(err)
		}
		return d
	default:
		t.Fatalf("%s: of what mode?", file)
	}
	d := domain(t, cfg)
	install(t, d, h.AN, key)
	return d
}

// text returns a PDS header and the data behind all headers in the README's words, as far as
// they distinguish packets.
func text(t *testing.T, id string, plain []byte) string {
	t.Helper()
	if s := wire.Dump(plain); strings.Contains(s, "invalid") {
		t.Errorf("%s: %s", id, s)
	}
	p, err := wire.ParsePrologue(plain)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	switch p.Type {
	case wire.TypeRUDReq, wire.TypeRODReq:
		h, _, err := wire.ParseReq(plain)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		return fmt.Sprintf("%v clear_off=%d psn=%#x spdcid=%d", p.Type, h.ClearOff, uint32(h.PSN), h.SPDCID)
	case wire.TypeAck, wire.TypeAckCC:
		h, _, err := wire.ParseAck(plain)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		return fmt.Sprintf("%v cack=%#x spdcid=%d dpdcid=%d", p.Type, uint32(h.CACK), h.SPDCID, h.DPDCID)
	case wire.TypeCP:
		h, _, err := wire.ParseCP(plain)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		return fmt.Sprintf("CTRL %v psn=%#x spdcid=%d payload=%#x", h.Ctl, uint32(h.PSN), h.SPDCID, h.Payload)
	}
	t.Fatalf("%s: %v", id, p.Type)
	return ""
}

// covers reports whether the words of got stand in line, in that order.
func covers(line, got string) bool {
	words := strings.Fields(line)
	for w := range strings.FieldsSeq(got) {
		i := slices.Index(words, w)
		if i < 0 {
			return false
		}
		words = words[i+1:]
	}
	return true
}

// S-SEC-02, S-SEC-03: every secured packet of every capture opens, has what another decoder
// read in it, and is sealed again to the same bytes. What came in clear is dropped.
func TestVectorPackets(t *testing.T) {
	dir := vectors(t)
	keys, list := readme(t, dir)
	for an, k := range packetKeys {
		if keys[strconv.Itoa(an)] != k {
			t.Fatalf("key of AN %d is %s, here %s", an, keys[strconv.Itoa(an)], k)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "refprov-tss-*.pcap"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures in %s: %v", dir, err)
	}
	opened := 0
	var inClear []string
	for _, path := range files {
		file := filepath.Base(path)
		heard := map[netip.Addr]*Domain{} // by address, to hear the whole capture
		for i, f := range frames(t, path) {
			id := fmt.Sprintf("%s %d", file, i+1)
			h, n, err := wire.ParseTSS(f.pkt)
			if err != nil {
				inClear = append(inClear, id)
				d := vectorDomain(t, file, &wire.TSS{SDI: 1}, Key(unhex(t, packetKeys[0])), f.dst, 0)
				want(t, d, 0, f.pkt, f.outer, f.src, DropClear, "")
				if h, _, err := wire.ParseNack(f.pkt); err != nil || h.Code != wire.NackNewStartPSN {
					t.Errorf("%s: %v, %v", id, h, err)
				}
				continue
			}
			l, ok := list[id]
			if !ok || h != l.header {
				t.Errorf("%s: %v, listed as %v", id, h, l.header)
				continue
			}
			delete(list, id)
			key := Key(unhex(t, packetKeys[h.AN]))
			d := heard[f.dst]
			if d == nil {
				d = vectorDomain(t, file, &h, key, f.dst, 0xffff)
				heard[f.dst] = d
			}
			plain, who, why := d.Open(0, bytes.Clone(f.pkt), f.outer, f.src)
			if why != Good || who == 0 {
				t.Errorf("%s: %v", id, why)
				continue
			}
			opened++
			if got := text(t, id, plain); !covers(l.text, got) {
				t.Errorf("%s: %s\nlisted as %s", id, got, l.text)
			}
			again := vectorDomain(t, file, &h, key, f.src, h.SSI)
			use(t, again, 0, h.AN, h.Epoch, h.TSC)
			out, ok := again.Begin(nil)
			if !ok || len(out) != n {
				t.Fatalf("%s: no packet", id)
			}
			out = append(append(out, plain...), make([]byte, wire.ICVLen)...)
			again.Seal(out, f.outer)
			if !bytes.Equal(out, f.pkt) {
				t.Errorf("%s: sealed again as\n%x, was\n%x", id, out, f.pkt)
			}
		}
	}
	if !slices.Equal(inClear, clearPackets) {
		t.Errorf("in clear: %q, want %q", inClear, clearPackets)
	}
	for id := range list {
		t.Errorf("%s is listed and is not there", id)
	}
	if opened < 50 {
		t.Errorf("%d packets are too few to say anything", opened)
	}
	t.Logf("%d packets in %d captures, %d in clear", opened, len(files), len(inClear))
}

// The known answers in this package are all of those in tss-kat.json.
func TestVectorAnswers(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(vectors(t), "tss-kat.json"))
	if err != nil {
		t.Fatal(err)
	}
	var kat struct {
		KDF []struct {
			Name, Label, Context, Key, IVMask string
			Master                            string `json:"master_key"`
			Input                             string `json:"first_cmac_input"`
			Bits                              int    `json:"out_bits"`
		}
		Packets []struct {
			File, Mode, Key, IV, AAD, Plaintext, Ciphertext, ICV string
			DomainKey                                            string `json:"domain_key"`
			Mask                                                 string `json:"ivmask"`
			Context                                              string `json:"kdf_context"`
			Label                                                string `json:"kdf_label"`
			Frame                                                int
			SP, AN                                               uint8
			SDI, Epoch                                           int
			SSI                                                  *uint32
			TSC                                                  uint64
		}
	}
	if err := json.Unmarshal(b, &kat); err != nil {
		t.Fatal(err)
	}
	if len(kat.KDF) != len(kdfAnswers) || len(kat.Packets) != len(packetAnswers) {
		t.Fatalf("%d derivations and %d packets, here %d and %d", len(kat.KDF), len(kat.Packets), len(kdfAnswers), len(packetAnswers))
	}
	for i, k := range kat.KDF {
		if got := (kdfAnswer{k.Name, k.Label, k.Context, k.Input, k.Key, k.IVMask}); got != kdfAnswers[i] || k.Master != kdfMaster || k.Bits != kdfBits {
			t.Errorf("%+v\nhere %+v", k, kdfAnswers[i])
		}
	}
	for i, p := range kat.Packets {
		c := &packetAnswers[i]
		var ssi uint32
		if p.SSI != nil {
			ssi = *p.SSI
		}
		got := packetAnswer{c.file, c.frame, c.mode, p.AN, p.SP != 0, ssi, p.TSC, p.Key, p.IV, p.AAD, p.Plaintext, p.Ciphertext + p.ICV}
		if got != *c || p.File != c.file || p.Frame != c.frame || p.Mode != c.mode.String() || p.DomainKey != packetKeys[p.AN] || p.SDI != 1 || p.Epoch != 0 {
			t.Errorf("%+v\nhere %+v", p, *c)
		}
		if p.Context == "" {
			continue
		}
		// The derivation of its key, from the given context.
		var m cmac
		m.init(newBlock(unhex(t, p.DomainKey)))
		in := slices.Concat([]byte{0}, []byte(p.Label), []byte{0}, unhex(t, p.Context), []byte{kdfBits >> 8, kdfBits & 0xff})
		var out []byte
		for n := range byte(3) {
			in[0] = n + 1
			out = append(out, m.sum(in)[:]...)
		}
		if hex.EncodeToString(out[:32]) != p.Key || hex.EncodeToString(out[32:44]) != p.Mask {
			t.Errorf("%s %d: key %x", p.File, p.Frame, out)
		}
	}
}
