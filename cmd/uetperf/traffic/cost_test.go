package traffic

import (
	"testing"
	"time"
)

// quickConn completes what is posted at once, with a real clock.
type quickConn struct {
	Conn
	out []Completion
}

var quickOrigin = time.Now()

func (c *quickConn) Now() time.Duration               { return time.Since(quickOrigin) }
func (c *quickConn) Usage() (user, sys time.Duration) { return 0, 0 }

func (c *quickConn) SendAll(slots []*Slot, seq int64) (int, error) {
	for _, s := range slots {
		c.out = append(c.out, Completion{Slot: s, Sent: true, Seq: -1})
	}
	return len(slots), nil
}

// BenchmarkStream is the part that the test itself has in a message: of rate, and of bw, which takes
// times.
func BenchmarkStream(b *testing.B) {
	for _, test := range []string{Rate, BW} {
		b.Run(test, func(b *testing.B) {
			s := &Spec{Test: test, Op: TSend, Size: 8, Window: 64, Time: time.Hour, Parallel: 1}
			l, c := NewLeg(s, 0, false, NewGroup(s, false, nil)), &quickConn{}
			l.Conn = c
			l.Gate.Store(true)
			b.ReportAllocs()
			for n, took := 0, 0; n < b.N; n += max(1, took) {
				if _, _, err := l.Turn(took); err != nil {
					b.Fatal(err)
				}
				if err := l.Take(c.out); err != nil {
					b.Fatal(err)
				}
				took, c.out = len(c.out), c.out[:0]
			}
		})
	}
}
