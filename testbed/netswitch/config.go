package netswitch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/testbed/fabric"
)

// A Config is the configuration file of the switch program.
type Config struct {
	Fabric fabric.Config `json:"fabric"`
	// Interfaces names the network interface of a port, by the port's name. A port without
	// an entry uses the interface that has an address within one of the port's Addrs.
	Interfaces map[string]string `json:"interfaces,omitempty"`
}

// Options are the arguments of Open.
type Options struct {
	Config
	// HTTP is the address of the HTTP interface, such as "198.18.16.1:8080". It belongs to the
	// namespace that Open was called in. "" means none.
	HTTP string
	// Log gets the decisions as JSON lines and is closed at the end. nil means that they are
	// not kept. LogAll also logs packets that just passed. LogMax bounds the bytes written; 0
	// means DefaultLogMax.
	Log    io.WriteCloser
	LogAll bool
	LogMax int64
	// Spin is the longest time before a packet is due at which the switch stops sleeping. 0
	// means DefaultSpin. A negative value means that it always sleeps.
	Spin time.Duration

	// NoPriority leaves the forwarding thread in the ordinary scheduling class. Otherwise it
	// uses real-time priority if permitted (CAP_SYS_NICE).
	NoPriority bool

	pin int // 1 + the processor that forwards; 0 means any
}

// DefaultSpin is about the time that a processor of a virtual machine takes to wake up.
const DefaultSpin = 50 * time.Microsecond

// ReadConfig reads a Config. An error is one line that names the file and the fault. Open
// checks the fabric.
func ReadConfig(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err // it names the path
	}
	var c Config
	if err := decodeStrict(b, &c); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// decodeStrict reads one JSON value and nothing else. An error is one line.
func decodeStrict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		var syn *json.SyntaxError
		if errors.As(err, &syn) {
			return fmt.Errorf("line %d is no JSON: %w", 1+bytes.Count(b[:min(int(syn.Offset), len(b))], []byte("\n")), err)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("it ends in the middle: give one whole JSON object")
		}
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more follows after the JSON object: give one")
	}
	return nil
}

// A netInterface is an interface that a port can use.
type netInterface struct {
	name  string
	index int
	mtu   int
	mac   mac
	addrs []netip.Prefix // each with the interface's own address
	own4  netip.Addr
	own6  netip.Addr
}

// chooseInterfaces finds the interface of each port of c among ifaces.
func chooseInterfaces(c *Config, ifaces []*netInterface) ([]*netInterface, error) {
	names := make([]string, len(c.Fabric.Ports))
	for i := range c.Fabric.Ports {
		names[i] = c.Fabric.Ports[i].Name
	}
	for n := range c.Interfaces {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("interfaces: there is no port %q; the ports are %s", n, strings.Join(names, ", "))
		}
	}
	taken := map[string]string{}
	chosen := make([]*netInterface, len(names))
	for i, name := range names {
		var l *netInterface
		var err error
		if dev := c.Interfaces[name]; dev != "" {
			l, err = byName(dev, ifaces)
		} else {
			l, err = byAddr(c.Fabric.Ports[i].Addrs, ifaces)
		}
		if err != nil {
			return nil, fmt.Errorf("port %q: %w", name, err)
		}
		if other, ok := taken[l.name]; ok {
			return nil, fmt.Errorf("ports %q and %q both use interface %s: give each its own in \"interfaces\"", other, name, l.name)
		}
		taken[l.name] = name
		chosen[i] = l
	}
	return chosen, nil
}

func byName(dev string, ifaces []*netInterface) (*netInterface, error) {
	for _, l := range ifaces {
		if l.name == dev {
			return l, nil
		}
	}
	return nil, fmt.Errorf("there is no interface %s here; there are %s", dev, listInterfaces(ifaces))
}

func byAddr(ports []netip.Prefix, ifaces []*netInterface) (*netInterface, error) {
	for _, want := range ports {
		for _, l := range ifaces {
			for _, have := range l.addrs {
				if want.Contains(have.Addr()) {
					return l, nil
				}
			}
		}
	}
	s := make([]string, len(ports))
	for i := range ports {
		s[i] = ports[i].String()
	}
	return nil, fmt.Errorf("no interface has an address in %s (%s): give it one, or name the port's in \"interfaces\"",
		strings.Join(s, ", "), listInterfaces(ifaces))
}

func listInterfaces(ifaces []*netInterface) string {
	var s []string
	for _, l := range ifaces {
		e := l.name
		for _, a := range l.addrs {
			e += " " + a.String()
		}
		s = append(s, e)
	}
	if s == nil {
		return "none"
	}
	return strings.Join(s, ", ")
}
