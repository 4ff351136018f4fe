// Package capture writes the datagrams that endpoints send and receive to a pcapng file. A
// comment describes each packet, so no dissector is needed.
//
// An endpoint sees UDP payloads, not packets. The IP and UDP headers in the file are
// therefore made from the addresses, and the times are those at which the socket call
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
	// SnapLen is the number of bytes kept of a packet: all headers and the beginning of the
	// data.
	SnapLen = 256
	// MaxBytes is the approximate limit of the file's size. Later packets are counted but not
	// written. One second of bw makes a hundred megabytes.
	MaxBytes = 1 << 30
)

// The interfaces of a file. The packets of secured endpoints are written before they are
// sealed and after they were opened, so they have neither security header nor trailer. They
// get an interface of their own, because a reader that expects a CRC would report each of
// them as damaged. Packets in clear, and received packets that did not open, are on the
// other interface.
//
// The file does not contain sealed packets with their key, though pcapng has a block for
// keys: the key would open every other capture, too.
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
	plain   int // index of IfacePlain; 0 until it exists
	n, lost uint64
	bytes   int64
	max     int64
	err     error
}

// Create creates a file, or truncates an existing one.
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

// Tap writes one datagram. It is a value for uet.Config.Tap.
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

// ttl is that of the made-up headers, as this host would send them.
const ttl = 64

// write writes one packet with made-up headers and its comment. The caller holds mu.
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
	w.bytes += int64(len(data)+len(text)) + 48 // a block adds about 48
	return w.w.WritePacketWithOptions(
		gopacket.CaptureInfo{Timestamp: now, CaptureLength: len(data), Length: len(whole), InterfaceIndex: iface}, data,
		pcapgo.NgPacketOptions{Comments: []string{text}, Flags: &pcapgo.NgEpbFlags{Direction: dir}},
	)
}

// iface returns the index of the interface that a packet is written to.
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

// Close closes the file. It returns the number of packets written, the number that found no
// room, and the first error.
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
