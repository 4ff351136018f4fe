// Package capture writes what endpoints send and receive to a pcapng file, with
// what each packet says in its comment: no dissector is needed to read it.
//
// An endpoint sees UDP payloads, not packets: the IP and UDP headers in the file
// are made up from the addresses. So are the times: when the socket call
// returned.
package capture

import (
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/uetkit/uetkit/uet"
)

const (
	// SnapLen is how many bytes of a packet are kept: all headers and the
	// beginning of the data.
	SnapLen = 256
	// MaxBytes is about how long a file becomes; what comes later is counted
	// and not written. A second of bw makes a hundred megabytes.
	MaxBytes = 1 << 30
)

// The interfaces of a file. What a secured endpoint sends is shown before it is
// sealed, what it receives after it was opened: there is neither a security header
// nor a trailer. A reader that expected a CRC would call each such packet damaged, so
// they have an interface of their own; packets in clear, and received ones that did
// not open, are on the other. Sealed bytes with the key in the file (pcapng has a block
// for it) would open all other captures of that key, too.
const (
	IfaceName  = "uet"
	IfacePlain = "uet-plain"
)

// A Writer writes one file. Its methods may be called from any goroutine.
type Writer struct {
	mu      sync.Mutex
	file    *os.File
	w       *pcapgo.NgWriter
	out     gopacket.SerializeBuffer
	plain   int // the interface of packets before they are sealed, 0: not there yet
	n, lost uint64
	bytes   int64
	max     int64
	err     error
}

// Create makes a file, or empties the one that is there.
func Create(name, application string) (*Writer, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	w, err := pcapgo.NewNgWriterInterface(f, pcapgo.NgInterface{
		Name: IfaceName, Description: "endpoints of uetperf; IP and UDP headers are made up",
		OS: runtime.GOOS, LinkType: layers.LinkTypeRaw, SnapLength: SnapLen,
	}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: application}})
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Writer{file: f, w: w, out: gopacket.NewSerializeBuffer(), max: MaxBytes}, nil
}

// Tap writes one datagram: it is what uet.Config.Tap takes.
func (w *Writer) Tap(p *uet.Tapped) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.bytes >= w.max {
		w.lost++
		return
	}
	if w.err = w.write(time.Now(), p); w.err != nil {
		w.lost++
		return
	}
	w.n++
}

// ttl of made up headers: what this host would send.
const ttl = 64

func (w *Writer) write(now time.Time, p *uet.Tapped) error {
	from, to, dir := p.Local, p.Remote, pcapgo.NgEpbFlagDirectionOutbound
	if !p.Sent {
		from, to, dir = to, from, pcapgo.NgEpbFlagDirectionInbound
	}
	udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
	ip := header(from.Addr().Unmap(), to.Addr().Unmap(), p.TOS)
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return err
	}
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(w.out, opts, ip, udp, gopacket.Payload(p.Data)); err != nil {
		return err
	}
	whole := w.out.Bytes()
	data := whole[:min(len(whole), SnapLen)]
	iface, err := w.iface(p)
	if err != nil {
		return err
	}
	text := comment(p)
	w.bytes += int64(len(data)+len(text)) + 48 // about what a block adds
	return w.w.WritePacketWithOptions(
		gopacket.CaptureInfo{Timestamp: now, CaptureLength: len(data), Length: len(whole), InterfaceIndex: iface}, data,
		pcapgo.NgPacketOptions{Comments: []string{text}, Flags: &pcapgo.NgEpbFlags{Direction: dir}},
	)
}

// iface is the interface that shows a packet.
func (w *Writer) iface(p *uet.Tapped) (int, error) {
	if p.TSS == nil {
		return 0, nil
	}
	if w.plain == 0 {
		n, err := w.w.AddInterface(pcapgo.NgInterface{
			Name: IfacePlain, Description: "secured endpoints of uetperf, before sealing and after opening: no security header, no trailer",
			OS: runtime.GOOS, LinkType: layers.LinkTypeRaw, SnapLength: SnapLen,
		})
		if err != nil {
			return 0, err
		}
		w.plain = n
	}
	return w.plain, nil
}

type ipHeader interface {
	gopacket.NetworkLayer
	gopacket.SerializableLayer
}

func header(from, to netip.Addr, tos uint8) ipHeader {
	if from.Is4() {
		return &layers.IPv4{Version: 4, TOS: tos, TTL: ttl, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	}
	return &layers.IPv6{Version: 6, TrafficClass: tos, HopLimit: ttl, NextHeader: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
}

// Close ends the file. It reports how many packets are in it and how many found
// no room, and the first error of all.
func (w *Writer) Close() (written, lost uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err = w.err
	if e := w.w.Flush(); err == nil {
		err = e
	}
	if e := w.file.Close(); err == nil {
		err = e
	}
	w.err = os.ErrClosed
	return w.n, w.lost, err
}
