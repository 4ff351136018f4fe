package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// A frame is a packet as recorded in a capture. The reader owns it; data is valid until the
// next frame is read.
type frame struct {
	n        int // number in the capture, from 1
	at       time.Time
	link     layers.LinkType
	data     []byte
	len      int // on the wire in bytes, at least len(data)
	comments []string
	// kind is where its interface says that it comes from.
	kind ifaceKind
}

// An ifaceKind is where the frames of an interface come from.
type ifaceKind uint8

const (
	// ifaceOther is any other capture.
	ifaceOther ifaceKind = iota
	// ifaceTap is the tap of an endpoint, which sees nothing but UET.
	ifaceTap
	// ifacePlain is the tap of a secured endpoint, which sees packets before they are
	// sealed and after they are opened: without security header and trailer.
	ifacePlain
)

// Names of the interfaces that the tap of an endpoint writes, in
// cmd/uetperf/internal/capture.
const (
	nameTap   = "uet"
	namePlain = "uet-plain"
)

// A reader reads a capture file of either format.
type reader struct {
	ng   *pcapgo.NgReader
	pcap *pcapgo.Reader
	n    int
}

// errNoCapture says that a file has neither format.
var errNoCapture = errors.New("neither pcap nor pcapng; give a file of tcpdump -w, or of uetperf --pcap")

// sectionMagic begins a pcapng file of either byte order.
var sectionMagic = [4]byte{0x0a, 0x0d, 0x0d, 0x0a}

func openCapture(r io.Reader) (*reader, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	magic, err := b.Peek(4)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%d bytes are no capture: %w", len(magic), errNoCapture)
		}
		return nil, err
	}
	if [4]byte(magic) == sectionMagic {
		ng, err := pcapgo.NewNgReader(b, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
		if err != nil {
			return nil, fmt.Errorf("the pcapng file does not begin well: %w", unexpected(err))
		}
		return &reader{ng: ng}, nil
	}
	p, err := pcapgo.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errNoCapture, unexpected(err))
	}
	return &reader{pcap: p}, nil
}

// unexpected turns io.EOF into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next reads the next frame into f. At the end it returns io.EOF.
func (r *reader) next(f *frame) error {
	*f = frame{n: r.n + 1}
	if r.ng != nil {
		data, ci, opts, err := r.ng.ZeroCopyReadPacketDataWithOptions()
		if err != nil {
			return err
		}
		f.data, f.at, f.len, f.comments = data, ci.Timestamp, ci.Length, opts.Comments
		if i, err := r.ng.Interface(ci.InterfaceIndex); err == nil {
			f.link = i.LinkType
			switch i.Name {
			case nameTap:
				f.kind = ifaceTap
			case namePlain:
				f.kind = ifacePlain
			}
		}
	} else {
		data, ci, err := r.pcap.ZeroCopyReadPacketData()
		if err != nil {
			return err
		}
		f.data, f.at, f.len, f.link = data, ci.Timestamp, ci.Length, r.pcap.LinkType()
	}
	f.len = max(f.len, len(f.data))
	r.n++
	return nil
}
