package netswitch

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes of the rings of one port.
const (
	ringBytes  = 8 << 20 // received packets that wait for the switch, at least
	ringFrames = 2048    // and at least this many
	blockBytes = 1 << 18
	txBatch    = 32 // frames a system call
)

// A port is one packet socket: a ring that the kernel fills with packets that arrive, and
// a batch of frames to send.
type port struct {
	name  string // of the fabric
	dev   string // of the interface
	index int
	mtu   int
	mac   mac
	own4  netip.Addr // the switch's addresses here, to ask hosts with
	own6  netip.Addr

	fd      int
	lock    int    // socket that keeps a second switch off the interface
	mem     []byte // of the ring
	frames  int    // in the ring
	stride  int    // bytes from frame to frame in a block
	inBlock int    // frames in a block
	block   int    // bytes in a block
	at      int    // frame that comes next

	tx      [txBatch]mmsghdr
	txVec   [txBatch]unix.Iovec
	txAt    [txBatch]time.Duration // when it should have left; negative if not from the fabric
	txBuf   []byte                 // slots of txSlot bytes
	txSlot  int
	pending int

	neigh *neighbours
	base  uint64 // interfaceStats when the switch started
}

type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// openPort binds a packet socket to an interface of the namespace of the calling
// thread. Hosts behind it have addresses within addrs.
func openPort(name string, addrs []netip.Prefix, l *netInterface) (*port, error) {
	p := &port{name: name, dev: l.name, index: l.index, mtu: l.mtu, mac: l.mac, own4: l.own4, own6: l.own6, fd: -1, lock: -1, neigh: newNeighbours(addrs)}
	if err := p.open(); err != nil {
		p.close()
		return nil, fmt.Errorf("port %q: interface %s: %w", name, l.name, err)
	}
	return p, nil
}

// open opens the socket and its rings. After an error some are open.
func (p *port) open() (err error) {
	// Names of abstract sockets belong to the network namespace and go with the process.
	if p.lock, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return os.NewSyscallError("socket(AF_UNIX)", err)
	}
	if err := unix.Bind(p.lock, &unix.SockaddrUnix{Name: "@uetswitch/" + p.dev}); err == unix.EADDRINUSE {
		return errors.New("another switch forwards here already, and each packet would arrive twice: end it first")
	} else if err != nil {
		return os.NewSyscallError("bind(AF_UNIX)", err)
	}
	// Without a protocol the socket receives nothing until it is bound.
	p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		if err == unix.EPERM || err == unix.EACCES {
			return fmt.Errorf("no packet socket: CAP_NET_RAW is missing: run as root, or give it to the program or container (docker run --cap-add NET_RAW)")
		}
		return os.NewSyscallError("socket(AF_PACKET)", err)
	}
	if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return os.NewSyscallError("PACKET_VERSION", err)
	}
	// Packets that this namespace's kernel sends (ARP replies, the control connection) must
	// not be seen. A kernel before 4.20 shows them, marked as outgoing.
	_ = unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	// No queueing discipline between the switch's queues and the wire.
	if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return os.NewSyscallError("PACKET_QDISC_BYPASS", err)
	}
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20); err != nil {
		_ = unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<20)
	}
	if err := p.openRing(); err != nil {
		return err
	}
	p.txSlot = (ethHeader + max(p.mtu, 1280) + 63) &^ 63
	p.txBuf = make([]byte, txBatch*p.txSlot)
	for i := range p.tx {
		p.txVec[i].Base = &p.txBuf[i*p.txSlot]
		p.tx[i].hdr.Iov = &p.txVec[i]
		p.tx[i].hdr.Iovlen = 1
	}
	if err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: p.index}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	return nil
}

// openRing maps the ring. Version 2 passes frames one by one. Version 3 passes blocks, an
// unfilled one after a millisecond at the earliest: too late for a switch.
func (p *port) openRing() error {
	// The header, the address, and the room that the kernel leaves before the packet.
	const overhead = 128
	p.stride = (overhead + ethHeader + 4 + p.mtu + 15) &^ 15
	p.block = max(blockBytes, 1<<bits.Len(uint(p.stride-1)))
	p.inBlock = p.block / p.stride
	blocks := max(ringBytes/p.block, (ringFrames+p.inBlock-1)/p.inBlock)
	var err error
	for ; blocks > 0; blocks /= 2 {
		p.frames = blocks * p.inBlock
		err = unix.SetsockoptTpacketReq(p.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq{
			Block_size: uint32(p.block), Block_nr: uint32(blocks), Frame_size: uint32(p.stride), Frame_nr: uint32(p.frames),
		})
		if err != unix.ENOMEM {
			break
		}
	}
	if err != nil {
		return os.NewSyscallError("PACKET_RX_RING", err)
	}
	p.mem, err = unix.Mmap(p.fd, 0, blocks*p.block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	return os.NewSyscallError("mmap", err)
}

func (p *port) close() {
	if p.mem != nil {
		_ = unix.Munmap(p.mem)
		p.mem = nil
	}
	for _, fd := range []*int{&p.fd, &p.lock} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

const sizeofTpacket2 = (unsafe.Sizeof(unix.Tpacket2Hdr{}) + 15) &^ 15

// An arrival is a received frame, lent until release.
type arrival struct {
	h    *unix.Tpacket2Hdr
	kind uint8  // PACKET_HOST, …
	typ  uint16 // EtherType
	eth  []byte // from the Ethernet header on
	net  []byte // from the network header on
	cut  bool   // longer than the ring's frames
	csum bool   // the checksum is still to be computed
}

// next returns the next frame that has arrived, if there is one.
func (p *port) next(r *arrival) bool {
	off := p.at/p.inBlock*p.block + p.at%p.inBlock*p.stride
	f := p.mem[off : off+p.stride]
	r.h = (*unix.Tpacket2Hdr)(unsafe.Pointer(&f[0]))
	status := atomic.LoadUint32(&r.h.Status)
	if status&unix.TP_STATUS_USER == 0 {
		return false
	}
	sll := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&f[sizeofTpacket2]))
	r.kind, r.typ = sll.Pkttype, htons(sll.Protocol)
	end := int(r.h.Mac) + int(r.h.Snaplen)
	r.eth, r.net = f[r.h.Mac:end], f[min(int(r.h.Net), end):end]
	r.cut = r.h.Snaplen < r.h.Len
	r.csum = status&unix.TP_STATUS_CSUMNOTREADY != 0
	return true
}

// release gives the frame back to the kernel.
func (p *port) release(r *arrival) {
	atomic.StoreUint32(&r.h.Status, unix.TP_STATUS_KERNEL)
	if p.at++; p.at == p.frames {
		p.at = 0
	}
}

// waited returns how long a frame has been in the ring at the wall clock's now.
func (r *arrival) waited(now time.Time) time.Duration {
	return time.Duration(now.Unix()-int64(r.h.Sec))*time.Second + time.Duration(now.Nanosecond()-int(r.h.Nsec))
}

// slot returns an empty buffer for the next frame to send. The batch must not be full.
func (p *port) slot() []byte {
	return p.txBuf[p.pending*p.txSlot : p.pending*p.txSlot : (p.pending+1)*p.txSlot]
}

// push puts the frame that was written to slot at the end of the batch.
func (p *port) push(frame []byte, at time.Duration) {
	p.txVec[p.pending].SetLen(len(frame))
	p.txAt[p.pending] = at
	p.pending++
}

// send sends the batch from its frame i on. It returns how many frames the kernel accepted.
// If that is fewer than all, it also returns why the kernel refused the next one.
func (p *port) send(i int) (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(p.fd), uintptr(unsafe.Pointer(&p.tx[i])), uintptr(p.pending-i), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// ringDrops returns how many packets found the ring full since the last call.
func (p *port) ringDrops() uint64 {
	s, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

// htons converts a number from host to network byte order; x/sys has only the field types.
func htons(v uint16) uint16 {
	b := *(*[2]byte)(unsafe.Pointer(&v))
	return uint16(b[0])<<8 | uint16(b[1])
}
