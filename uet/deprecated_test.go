package uet

import (
	"reflect"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/fi"
)

func TestEachEndpointHasPIDZero(t *testing.T) {
	// R-ADDR-10: an endpoint that asks for no PIDonFEP has 0, the first that is free: no other endpoint
	// has its UDP port. Messages find the right one.
	t.Parallel()
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	c := r.node()
	toC := a.know(c)
	ports := map[uint16]bool{}
	for _, n := range []*node{a, b, c} {
		name, err := n.Name()
		ok(t, err)
		if name.PIDonFEP != 0 || ports[name.AddrPort().Port()] {
			t.Errorf("%v", name)
		}
		ports[name.AddrPort().Port()] = true
	}
	for to, n := range map[fi.Addr]*node{toB: b, toC: c} {
		buf := make([]byte, 1)
		ok(t, n.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
		ok(t, a.TSend([]byte{byte(to) + 1}, to, 1, nil))
		wait(t, n.rx, a)
		wait(t, a.tx, n)
		if buf[0] != byte(to)+1 {
			t.Errorf("the message to %v went elsewhere", to)
		}
	}
}

func TestRegistrationIsNeverAsynchronous(t *testing.T) {
	// R-MR-15: the deprecated FI_REG_MR is refused. A region may be used when the call returns, and no
	// event tells so.
	t.Parallel()
	const regMR fi.Flags = 1 << 59
	r := newRig(t, rma(0, 0))
	a, b, toB, _ := r.pair()
	mem := make([]byte, 8)
	_, err := r.domain.RegMR(mem, fi.RemoteWrite, 0, 3, regMR, nil)
	want(t, err, fi.EBADFLAGS)
	if _, has := reflect.TypeFor[*Domain]().MethodByName("BindEQ"); has {
		t.Error("a domain takes an event queue")
	}
	m, err := r.domain.RegMR(mem, fi.RemoteWrite, 0, 3, 0, nil)
	ok(t, err)
	if m.Key() != 3 {
		t.Errorf("key %#x", m.Key())
	}
	ok(t, a.Write([]byte("now"), toB, 0, 3, nil))
	_, err = ends(t, a.tx)
	ok(t, err)
	quiet(t, a.evts)
	quiet(t, b.evts)
	ok(t, m.Close())
}

func TestInfoHasNoCompletionOrder(t *testing.T) {
	// R-INFO-17: comp_order is deprecated and 0: nothing can ask for it.
	var look func(path string, v reflect.Type)
	fields := 0
	look = func(path string, v reflect.Type) {
		for i := range v.NumField() {
			f := v.Field(i)
			fields++
			if name := strings.ToLower(f.Name); strings.Contains(name, "comporder") || strings.Contains(name, "completionorder") {
				t.Errorf("%s.%s", path, f.Name)
			}
			if f.Type.Kind() == reflect.Struct && strings.HasSuffix(f.Type.PkgPath(), "/uet") {
				look(path+"."+f.Name, f.Type)
			}
		}
	}
	look("Info", reflect.TypeFor[Info]())
	if fields < 50 {
		t.Errorf("%d fields were looked at", fields)
	}
}
