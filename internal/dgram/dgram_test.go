package dgram

import "testing"

func TestDatagramSegments(t *testing.T) {
	for _, c := range []struct {
		name     string
		len, seg int
		want     []int
	}{
		{"empty", 0, 10, nil},
		{"one, seg unset", 7, 0, []int{7}},
		{"one, shorter than seg", 7, 10, []int{7}},
		{"exact multiple", 20, 10, []int{10, 10}},
		{"short tail", 25, 10, []int{10, 10, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &Datagram{Data: make([]byte, c.len), Seg: c.seg}
			if got := d.Segments(); got != len(c.want) {
				t.Errorf("Segments() = %d, want %d", got, len(c.want))
			}
			rest := d.Data
			for i, w := range c.want {
				var head []byte
				head, rest = d.Next(rest)
				if len(head) != w {
					t.Errorf("segment %d has %d bytes, want %d", i, len(head), w)
				}
			}
			if len(rest) != 0 {
				t.Errorf("%d bytes left over", len(rest))
			}
		})
	}
}

func TestPoolReuse(t *testing.T) {
	var p Pool
	d := p.Get()
	if cap(d.Data) < MaxTrain {
		t.Fatalf("cap %d cannot hold a train of %d", cap(d.Data), MaxTrain)
	}
	d.Data = append(d.Data, 1, 2, 3)
	p.Put(d)
	if p.Out() != 0 {
		t.Errorf("Out() = %d after everything was put", p.Out())
	}
	if e := p.Get(); e != d || len(e.Data) != 0 {
		t.Errorf("Get did not reuse the emptied Datagram")
	}
}

func TestPoolKeepsNoMoreThanMost(t *testing.T) {
	p := Pool{Most: 1}
	a, b := p.Get(), p.Get()
	p.Put(a)
	p.Put(b)
	if p.Get() != a || p.Get() == b || p.Out() != 2 {
		t.Errorf("it kept two, or %d are out", p.Out())
	}
}

func TestPoolDoublePutPanics(t *testing.T) {
	var p Pool
	d := p.Get()
	p.Put(d)
	defer func() {
		if recover() == nil {
			t.Error("second Put did not panic")
		}
	}()
	p.Put(d)
}

func TestPoolNoAllocs(t *testing.T) {
	var p Pool
	p.Put(p.Get())
	if n := testing.AllocsPerRun(100, func() { p.Put(p.Get()) }); n != 0 {
		t.Errorf("Get and Put allocate %v times", n)
	}
}
