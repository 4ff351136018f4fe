package capture

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// A block is a packet as a file has it.
type block struct {
	gopacket.CaptureInfo
	data []byte
	opts pcapgo.NgPacketOptions
}

func readBack(t *testing.T, name string) (out []block) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	if r.LinkType() != layers.LinkTypeRaw {
		t.Errorf("link type %v", r.LinkType())
	}
	for {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, block{ci, data, opts})
	}
}

var (
	here4, there4 = netip.MustParseAddrPort("192.0.2.1:1234"), netip.MustParseAddrPort("192.0.2.2:4793")
	here6, there6 = netip.MustParseAddrPort("[2001:db8::1]:1234"), netip.MustParseAddrPort("[2001:db8::2]:4793")
)

func request(flags wire.Flags, payload int) []byte {
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextNone, Flags: flags, ClearOff: -1, PSN: 7, SPDCID: 3}
	return append(h.Append(nil), make([]byte, payload)...)
}

// message is a whole message with a trailer.
func message(payload int) []byte {
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, ClearOff: -1, PSN: 7, SPDCID: 3}
	m := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM, ReqLen: uint32(payload)}
	b := m.Append(h.Append(nil))
	return append(append(b, make([]byte, payload)...), 1, 2, 3, 4)
}

// A file read back has the addresses, directions, lengths, times in order and reasons, and
// headers that a dissector accepts.
func TestWriterReadBack(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcapng")
	w, err := Create(name, "test 1")
	if err != nil {
		t.Fatal(err)
	}
	cp := wire.CP{Ctl: wire.CtlProbe, PSN: 9, SPDCID: 1, DPDCID: 2}
	nack := wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed, PSN: 5, SPDCID: 1, DPDCID: 2}
	begin := time.Now()
	table := []struct {
		p       uet.Tapped
		comment string // its beginning
	}{
		{uet.Tapped{Sent: true, Local: here4, Remote: there4, TOS: 2, Data: request(wire.FlagSYN, 8192)}, "sent data that opens a PDC: RUD_REQ SYN "},
		{uet.Tapped{Sent: true, Local: here4, Remote: there4, TOS: 2, Data: request(wire.FlagRETX, 10)}, "sent data, again: RUD_REQ RETX "},
		{uet.Tapped{Sent: true, Local: here4, Remote: there4, Data: request(wire.FlagRETX, 10), Why: "NACK TRIMMED"}, "sent data, again (NACK TRIMMED): RUD_REQ RETX "},
		{uet.Tapped{Local: here4, Remote: there4, Data: request(0, 10), Why: "duplicate"}, "received data (duplicate): RUD_REQ "},
		{uet.Tapped{Sent: true, Local: here4, Remote: there4, Data: message(10), Trailer: 4}, "sent data: RUD_REQ - nh=REQ_STD clear_off=-1 psn=0x7 spdcid=3 dpdcid=0 | TAGGED_SEND "},
		{uet.Tapped{Local: here4, Remote: there4, Data: []byte{1, 2, 3}, Trailer: 4}, "received nothing"},
		{uet.Tapped{Local: here4, Remote: there4, TOS: 3, Data: nack.Append(nil)}, "received NACK TRIMMED: "},
		{uet.Tapped{Sent: true, Local: here6, Remote: there6, Data: cp.Append(nil)}, "sent control PROBE"},
		{uet.Tapped{Local: here6, Remote: there6, Data: []byte{0xff, 0xff, 1}}, "received what does not parse: "},
		{uet.Tapped{Local: here6, Remote: there6, Data: []byte{byte(wire.TypeRUDReq) << 3}}, "received what does not parse: "},
		{uet.Tapped{Local: here4, Remote: there4}, "received nothing"},
	}
	for i := range table {
		w.Tap(&table[i].p)
	}
	if n, lost, err := w.Close(); n != uint64(len(table)) || lost != 0 || err != nil {
		t.Errorf("%d written, %d lost, %v", n, lost, err)
	}
	blocks := readBack(t, name)
	if len(blocks) != len(table) {
		t.Fatalf("%d packets in the file", len(blocks))
	}
	for i, b := range blocks {
		p := &table[i].p
		if len(b.opts.Comments) != 1 || !strings.HasPrefix(b.opts.Comments[0], table[i].comment) {
			t.Errorf("%d: comments %q, want %q", i, b.opts.Comments, table[i].comment)
		}
		if p.Trailer > 0 && len(p.Data) > 4 && !strings.HasSuffix(b.opts.Comments[0], " | data=10") {
			t.Errorf("%d: %q counts the trailer", i, b.opts.Comments)
		}
		from, to, dir := p.Local, p.Remote, pcapgo.NgEpbFlagDirectionOutbound
		if !p.Sent {
			from, to, dir = to, from, pcapgo.NgEpbFlagDirectionInbound
		}
		if b.opts.Flags == nil || b.opts.Flags.Direction != dir {
			t.Errorf("%d: flags %+v", i, b.opts.Flags)
		}
		if b.Timestamp.Before(begin.Add(-time.Second)) || i > 0 && b.Timestamp.Before(blocks[i-1].Timestamp) {
			t.Errorf("%d: time %v", i, b.Timestamp)
		}
		head := 28
		if from.Addr().Is6() {
			head = 48
		}
		if b.Length != head+len(p.Data) || b.CaptureLength != min(b.Length, SnapLen) {
			t.Errorf("%d: %d of %d bytes", i, b.CaptureLength, b.Length)
		}
		first := gopacket.Decoder(layers.LayerTypeIPv4)
		if from.Addr().Is6() {
			first = layers.LayerTypeIPv6
		}
		pkt := gopacket.NewPacket(b.data, first, gopacket.Default)
		udp, _ := pkt.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if udp == nil || uint16(udp.SrcPort) != from.Port() || uint16(udp.DstPort) != to.Port() || int(udp.Length) != 8+len(p.Data) {
			t.Fatalf("%d: UDP %+v", i, udp)
		}
		if src, dst := pkt.NetworkLayer().NetworkFlow().Endpoints(); src.String() != from.Addr().String() || dst.String() != to.Addr().String() {
			t.Errorf("%d: %v → %v", i, src, dst)
		}
		if b.CaptureLength == b.Length {
			if !bytes.Equal(udp.Payload, p.Data) {
				t.Errorf("%d: other data", i)
			}
			if err := udp.SetNetworkLayerForChecksum(pkt.NetworkLayer()); err != nil {
				t.Error(err)
			}
			if err, bad := pkt.VerifyChecksums(); err != nil || len(bad) > 0 {
				t.Errorf("%d: checksums: %v %v", i, err, bad)
			}
		}
	}
}

// A full or unwritable file stops the capture but not the test.
func TestWriterStops(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "x.pcapng"), "test")
	if err != nil {
		t.Fatal(err)
	}
	w.max = 1000
	p := uet.Tapped{Sent: true, Local: here4, Remote: there4, Data: request(0, 100)}
	for range 100 {
		w.Tap(&p)
	}
	n, lost, err := w.Close()
	if n < 2 || n > 20 || n+lost != 100 || err != nil {
		t.Errorf("%d written, %d lost, %v", n, lost, err)
	}
	w.Tap(&p) // a late endpoint

	if w, err = Create(filepath.Join(t.TempDir(), "x.pcapng"), "test"); err != nil {
		t.Fatal(err)
	}
	_ = w.file.Close()
	for range 100 {
		w.Tap(&p)
	}
	if n, lost, err := w.Close(); n+lost != 100 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("%d written, %d lost, %v", n, lost, err)
	}
	if _, err := Create(filepath.Join(t.TempDir(), "no", "x"), "test"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// The packets of a secured endpoint are on their own interface, so that readers expect no
// trailer. Their comments tell the security header.
func TestWriterPlain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcapng")
	w, err := Create(name, "test")
	if err != nil {
		t.Fatal(err)
	}
	h := &wire.TSS{SP: true, AN: 1, SDI: 1, SSI: 0xabcd, Epoch: 5, TSC: 0x1234}
	plain := uet.Tapped{Sent: true, Local: here4, Remote: there4, Data: request(0, 10), Why: "new", TSS: h}
	other := uet.Tapped{Local: here4, Remote: there4, Data: request(0, 10)}
	for _, p := range []*uet.Tapped{&other, &plain, &other, &plain} {
		w.Tap(p)
	}
	if n, _, err := w.Close(); n != 4 || err != nil {
		t.Fatalf("%d written, %v", n, err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		_, ci, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatal(err)
		}
		iface, err := r.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		want, comment := IfaceName, "received data: RUD_REQ "
		if i%2 == 1 {
			want, comment = IfacePlain, "sent data (new), sealed as an=1 sdi=1 ssi=0xabcd epoch=5 tsc=0x1234: RUD_REQ "
		}
		if iface.Name != want || !strings.HasPrefix(opts.Comments[0], comment) {
			t.Errorf("%d: on %q: %q", i, iface.Name, opts.Comments)
		}
	}
	if r.NInterfaces() != 2 {
		t.Errorf("%d interfaces", r.NInterfaces())
	}
}
