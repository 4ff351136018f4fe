package uet_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uet/msg"
)

// second is the error of a call that returns something else as well.
func second[T any](_ T, err error) error { return err }

// Every misuse of the API fails with an errno, and with a text that says what is wrong and how to
// mend it. testdata/misuse.txt has the texts: read them as somebody who has never seen the API.
// UPDATE=1 writes the file anew.
func TestMisuse(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	infos, err := uet.GetInfo("127.0.0.1", "", fi.Source, nil)
	must(err)
	info := infos[0]
	fabric, err := uet.OpenFabric(info, nil)
	must(err)
	domain, err := fabric.OpenDomain(info, nil)
	must(err)
	q, err := domain.OpenCQ(cq.Attr{}, nil)
	must(err)
	q2, err := domain.OpenCQ(cq.Attr{}, nil)
	must(err)
	vec, err := domain.OpenAV(av.Attr{}, nil)
	must(err)
	evts, err := fabric.OpenEQ(eq.Attr{}, nil)
	must(err)
	count, err := domain.OpenCntr(cntr.Attr{}, nil)
	must(err)
	ep, err := domain.OpenEndpoint(info, nil)
	must(err)
	up, err := domain.OpenEndpoint(info, nil)
	must(err)
	must(up.BindCQ(q2, fi.Transmit|fi.Recv))
	must(up.BindAV(vec))
	must(up.Enable())
	shut, err := cq.New(cq.Attr{}, nil)
	must(err)
	must(shut.Close())
	foreign, err := cq.New(cq.Attr{}, nil)
	must(err)
	gone, err := domain.OpenEndpoint(info, nil)
	must(err)
	must(gone.Close())
	self, err := up.Name()
	must(err)
	peer, err := vec.InsertString(self.AddrPort().String())
	must(err)
	events, err := av.New(av.Attr{Flags: fi.Event}, nil)
	must(err)
	buf := make([]byte, 8)
	hints := func(f func(*uet.Info)) error {
		h := &uet.Info{}
		f(h)
		return second(uet.GetInfo("127.0.0.1", "", fi.Source, h))
	}

	cases := []struct {
		call string
		err  func() error
	}{
		{"uet.Endpoint{}.Send", func() error { return new(uet.Endpoint).Send(buf, 0, nil) }},
		{"uet.Endpoint{}.Enable", func() error { return new(uet.Endpoint).Enable() }},
		{"uet.Endpoint{}.BindCQ", func() error { return new(uet.Endpoint).BindCQ(q, fi.Send) }},
		{"uet.Endpoint{}.Name", func() error { return second(new(uet.Endpoint).Name()) }},
		{"uet.Endpoint{}.Flush", func() error { return new(uet.Endpoint).Flush(t.Context()) }},
		{"uet.Endpoint{}.PathInfo", func() error { return second(new(uet.Endpoint).PathInfo()) }},
		{"uet.Endpoint{}.Close", func() error { return new(uet.Endpoint).Close() }},
		{"uet.Domain{}.OpenEndpoint", func() error { return second(new(uet.Domain).OpenEndpoint(info, nil)) }},
		{"uet.Fabric{}.OpenDomain", func() error { return second(new(uet.Fabric).OpenDomain(info, nil)) }},
		{"cq.CQ{}.Read", func() error { return second(new(cq.CQ).Read(make([]cq.Entry, 1))) }},
		{"cq.CQ{}.SRead", func() error { return second(new(cq.CQ).SRead(make([]cq.Entry, 1), 0, time.Millisecond)) }},
		{"eq.EQ{}.Read", func() error { return second(new(eq.EQ).Read(0)) }},
		{"cntr.Counter{}.Add", func() error { return new(cntr.Counter).Add(1) }},
		{"av.AV{}.InsertString", func() error { return second(new(av.AV).InsertString("127.0.0.1:4793")) }},

		{"GetInfo with flags", func() error { return second(uet.GetInfo("127.0.0.1", "", fi.Send, nil)) }},
		{"GetInfo of a name", func() error { return second(uet.GetInfo("nosuch.invalid", "", 0, nil)) }},
		{"GetInfo of host:port as node", func() error { return second(uet.GetInfo("127.0.0.1:4793", "", 0, nil)) }},
		{"GetInfo of a service", func() error { return second(uet.GetInfo("127.0.0.1", "no-such-service", 0, nil)) }},
		{"GetInfo of a service without a node", func() error { return second(uet.GetInfo("", "4793", 0, nil)) }},
		{"hint Domain.Name", func() error { return hints(func(h *uet.Info) { h.Domain.Name = "nosuch0" }) }},
		{"hint Caps", func() error { return hints(func(h *uet.Info) { h.Caps = fi.Msg | fi.Multicast }) }},
		{"hint PayloadMTU", func() error { return hints(func(h *uet.Info) { h.Config.PayloadMTU = 1500 }) }},
		{"hint Paths", func() error { return hints(func(h *uet.Info) { h.Config.Paths = 1000 }) }},
		{"hint Ep.Type and Security", func() error { return hints(func(h *uet.Info) { h.Config.Security = &uet.Security{} }) }},
		{"hint Ep.Type and order", func() error { return hints(func(h *uet.Info) { h.Ep.Type = fi.EpDgram; h.Tx.MsgOrder = fi.OrderSAS }) }},
		{"hint SrcAddr of another host", func() error { return second(uet.GetInfo("192.0.2.1", "", fi.Source, &uet.Info{})) }},
		{"hint Fabric.ProvName", func() error { return hints(func(h *uet.Info) { h.Fabric.ProvName = "verbs" }) }},

		{"OpenFabric(nil)", func() error { return second(uet.OpenFabric(nil, nil)) }},
		{"OpenEndpoint(nil)", func() error { return second(domain.OpenEndpoint(nil, nil)) }},
		{"Enable without a queue", func() error { return ep.Enable() }},
		{"BindCQ(nil)", func() error { return ep.BindCQ(nil, fi.Transmit) }},
		{"BindCQ without a direction", func() error { return ep.BindCQ(q, 0) }},
		{"BindCQ of a closed queue", func() error { return ep.BindCQ(shut, fi.Transmit) }},
		{"BindCQ of a queue by cq.New", func() error { return ep.BindCQ(foreign, fi.Transmit) }},
		{"BindCQ once", func() error { return ep.BindCQ(q, fi.Transmit|fi.Recv) }},
		{"BindCQ twice", func() error { return ep.BindCQ(q, fi.Recv) }},
		{"Enable without a vector", func() error { return ep.Enable() }},
		{"BindCntr without a kind", func() error { return ep.BindCntr(count, 0) }},
		{"BindCntr of what peers do", func() error { return ep.BindCntr(count, fi.RemoteWrite) }},
		{"BindAV(nil)", func() error { return ep.BindAV(nil) }},
		{"BindEQ(nil)", func() error { return ep.BindEQ(nil) }},
		{"Name before Enable", func() error { return second(ep.Name()) }},
		{"Flush before Enable", func() error { return ep.Flush(t.Context()) }},
		{"Send before Enable", func() error { return ep.Send(buf, 0, nil) }},
		{"BindCQ after Enable", func() error { return up.BindCQ(q, fi.Recv) }},
		{"Enable again", func() error { return up.Enable() }},
		{"Send to no handle", func() error { return up.Send(buf, 77, nil) }},
		{"Send to AddrUnspec", func() error { return up.Send(buf, fi.AddrUnspec, nil) }},
		{"SendMsg(nil)", func() error { return up.SendMsg(nil, 0) }},
		{"SendMsg with flags", func() error { return up.SendMsg(&uet.Msg{Addr: peer}, fi.MultiRecv) }},
		{"Inject of a long message", func() error { return up.Inject(make([]byte, 1<<20), peer) }},
		{"Connect of an RDM endpoint", func() error { return up.Connect(self, nil) }},
		{"SetOpt of no option", func() error { return up.SetOpt(fi.Opt(999), 1) }},
		{"Send after Close", func() error { return gone.Send(buf, peer, nil) }},
		{"Close again", func() error { return gone.Close() }},
		{"RegMR of nothing", func() error { return second(domain.RegMR(nil, fi.RemoteWrite, 0, 1, 0, nil)) }},
		{"RegMR with wrong rights", func() error { return second(domain.RegMR(buf, fi.Inject, 0, 1, 0, nil)) }},
		{"Domain.Close with endpoints", func() error { return domain.Close() }},
		{"Fabric.Close with domains", func() error { return fabric.Close() }},
		{"AV.Close while bound", func() error { return vec.Close() }},
		{"CQ.Close while bound", func() error { return q2.Close() }},

		{"CQ of no format", func() error { return second(domain.OpenCQ(cq.Attr{Format: 99}, nil)) }},
		{"CQ of a negative size", func() error { return second(domain.OpenCQ(cq.Attr{Size: -1}, nil)) }},
		{"SRead without a wait object", func() error { return second(q.SRead(make([]cq.Entry, 1), 0, time.Millisecond)) }},
		{"CQ.ReadErr(nil)", func() error { return second(q.ReadErr(nil, 0)) }},
		{"EQ.SRead without a wait object", func() error { return second(evts.SRead(0, time.Millisecond)) }},
		{"EQ.Write", func() error { return evts.Write(eq.Entry{}) }},
		{"Counter.Wait without a wait object", func() error { return count.Wait(1, time.Millisecond) }},
		{"CQ.Close again", func() error { return shut.Close() }},

		{"InsertString of a name", func() error { return second(vec.InsertString("nosuch.invalid:4793")) }},
		{"InsertString of a URL", func() error { return second(vec.InsertString("udp://127.0.0.1:4793")) }},
		{"InsertString without a port", func() error { return second(vec.InsertString("localhost:")) }},
		{"InsertString of no host", func() error { return second(vec.InsertString("0.0.0.0:4793")) }},
		{"InsertSvc of no port", func() error { return second(vec.InsertSvc("127.0.0.1", "99999")) }},
		{"Insert with flags", func() error { return second(vec.Insert(nil, nil, fi.Send, nil)) }},
		{"Insert without room for handles", func() error { return second(vec.Insert(make([]wire.Addr, 2), make([]fi.Addr, 1), 0, nil)) }},
		{"Insert with events and no queue", func() error { return second(events.Insert(make([]wire.Addr, 1), nil, 0, nil)) }},
		{"Lookup of no handle", func() error { return second(vec.Lookup(77)) }},
		{"Remove of no handle", func() error { return vec.Remove(77) }},
		{"SetUserID", func() error { return vec.SetUserID(peer, 7) }},
		{"AV of a shared name", func() error { return second(domain.OpenAV(av.Attr{Name: "shared"}, nil)) }},

		{"LoadClusterKey", func() error { return second(uet.LoadClusterKey("nosuch.key")) }},
		{"msg.LoadTLS", func() error { return second(msg.LoadTLS("nosuch", "me")) }},
		{"msg.NewTLS(nil)", func() error { return second(msg.NewTLS(nil)) }},
		{"NewClusterKey()", func() error { return second(uet.NewClusterKey()) }},
	}
	var said strings.Builder
	for _, c := range cases {
		err := c.err()
		text := "nothing is wrong"
		if err != nil {
			text = fmt.Sprintf("%v  [%s]", err, number(err))
			for _, m := range misuseMasks {
				text = m.re.ReplaceAllString(text, m.by)
			}
			if strings.HasPrefix(err.Error(), fi.Of(err).Error()) {
				t.Errorf("%s: %q is the errno alone", c.call, err)
			}
		}
		fmt.Fprintf(&said, "%s\n    %s\n", c.call, text)
	}
	if _, err := uet.GetInfo("127.0.0.1", "", fi.Source, &uet.Info{Domain: uet.DomainAttr{Name: "nosuch0"}}); !errors.Is(err, fi.ENODATA) {
		t.Errorf("no interface: %v is no fi.ENODATA", err)
	}
	for _, err := range []error{second(uet.LoadClusterKey("nosuch.key")), second(msg.LoadTLS("nosuch", "me"))} {
		if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, fi.ENOENT) {
			t.Errorf("no file: %v is no fs.ErrNotExist, or no fi.ENOENT", err)
		}
	}
	for _, c := range []interface{ Close() error }{ep, up, q, q2, vec, evts, count, domain, fabric, foreign, events} {
		must(c.Close())
	}
	const file = "testdata/misuse.txt"
	if os.Getenv("UPDATE") != "" {
		must(os.WriteFile(file, []byte(said.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	must(err)
	w, s := strings.Split(string(want), "\n"), strings.Split(said.String(), "\n")
	for i := range max(len(w), len(s)) {
		if i >= len(w) || i >= len(s) || w[i] != s[i] {
			t.Fatalf("%s:%d differs; now there would be\n%s", file, i+1, strings.Join(s[max(0, min(i-1, len(s))):min(i+1, len(s))], "\n"))
		}
	}
}

// misuseMasks hide what differs between hosts.
var misuseMasks = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`nosuch0 \(there is [^)]*\)`), "nosuch0 (there is INTERFACES)"},
	{regexp.MustCompile(`\(lookup [^)]*\)`), "(WHAT THE RESOLVER SAYS)"},
	{regexp.MustCompile(`[^:]+: SrcAddr 192.0.2.1 \(there is [^)]*\)`), " INTERFACES: SrcAddr 192.0.2.1 (there is ADDRESSES)"},
	{regexp.MustCompile(`\.[^.]+: Domain \(there is down\).*  \[`), "  ["},
}

// number is the name of the errno of an error, as fi has it.
func number(err error) string {
	for name, e := range map[string]fi.Errno{
		"EINVAL": fi.EINVAL, "EBADF": fi.EBADF, "ENODATA": fi.ENODATA, "EBADFLAGS": fi.EBADFLAGS, "EOPBADSTATE": fi.EOPBADSTATE, "ENOCQ": fi.ENOCQ, "ENOAV": fi.ENOAV,
		"ENOEQ": fi.ENOEQ, "EDOMAIN": fi.EDOMAIN, "EBUSY": fi.EBUSY, "EMSGSIZE": fi.EMSGSIZE, "ENOSYS": fi.ENOSYS, "EOPNOTSUPP": fi.EOPNOTSUPP,
		"ENOPROTOOPT": fi.ENOPROTOOPT, "EAGAIN": fi.EAGAIN, "ENOENT": fi.ENOENT,
	} {
		if fi.Of(err) == e {
			return "fi." + name
		}
	}
	return fi.Of(err).Error()
}
