package cms

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/uetkit/uetkit/internal/invariant"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew instead of comparing with it")

// golden compares a table with testdata/name, so that a change of the algorithm shows as a
// readable diff.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := "testdata/" + name
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; go test ./transport/internal/cms -run %s -rewrite writes it anew. Got:\n%s", path, t.Name(), got)
	}
}

func TestLinkSingleFlowFills(t *testing.T) {
	for _, rate := range []int64{125e6, 1250e6, 3000e6} {
		t.Run(fmt.Sprintf("%d MB/s", rate/1e6), func(t *testing.T) {
			l := newLink(1)
			l.rate = rate
			l.buffer = 4 << 20
			f := l.add(Config{})
			f.start(0)
			r := l.measure(50*ms, 50*ms)
			if r.goodput < 0.99 || r.drops > 0 || r.rtos > 0 {
				t.Errorf("goodput %.3f, %d drops, %d timeouts", r.goodput, r.drops, r.rtos)
			}
			// The queue stays near base RTT + target: 300 µs.
			if r.worst > 400*us {
				t.Errorf("%v in the queue", r.worst)
			}
		})
	}
}

func TestLinkRandomLoss(t *testing.T) {
	// Bars F5 and F5b of docs/perf.md: 0.95 and 0.80 of the clean rate under 1 % and 5 %
	// random loss. F1: half of the packets that the path delivers, up to 30 % loss.
	for _, c := range []struct {
		loss int // lost packets of 1000
		want float64
	}{{10, 0.95}, {50, 0.90}, {300, 0.35}} {
		l := newLink(2)
		l.loss = c.loss
		if c.loss > 100 {
			l.rate /= 10 // see loss.txt: one packet of three lost holds 15 KB in flight
		}
		f := l.add(Config{})
		f.start(0)
		if r := l.measure(20*ms, 50*ms); r.goodput < c.want {
			t.Errorf("%d ‰ lost: goodput %.3f, want %.2f", c.loss, r.goodput, c.want)
		}
	}
	// The same between hosts that pause, compared with such hosts on a clean path.
	clean := 0.0
	for _, c := range []struct {
		loss int
		want float64
	}{{0, 0.95}, {10, 0.90}, {50, 0.80}} {
		l := newLink(2).hosts()
		l.loss = c.loss
		f := l.add(Config{})
		f.start(0)
		r := l.measure(20*ms, 100*ms)
		if c.loss == 0 {
			clean = r.goodput
		}
		if r.goodput < c.want*clean {
			t.Errorf("%d ‰ lost between hosts: goodput %.3f of %.3f", c.loss, r.goodput, clean)
		}
	}
}

func TestLinkIsSharedEqually(t *testing.T) {
	// F35: 64 senders share a line; Jain's index is at least 0.9.
	for _, n := range []int{2, 4, 16, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLink(3).hosts()
			l.buffer, l.nic = 2<<20, 3*l.rate
			for i := range n {
				l.add(Config{}).start(time.Duration(i) * us)
			}
			r := l.measure(40*ms, 80*ms)
			if r.goodput < 0.98 || r.jain < 0.9 {
				t.Errorf("goodput %.3f, Jain %.3f", r.goodput, r.jain)
			}
		})
	}
}

func TestLinkLateSenderGetsItsShare(t *testing.T) {
	// A sender that starts late never saw the queue empty. It must neither starve nor
	// starve the others (the latecomer problem of Vegas).
	for _, buffer := range []int64{256 << 10, 4 << 20} {
		t.Run(fmt.Sprintf("%d KiB", buffer>>10), func(t *testing.T) {
			l := newLink(4)
			l.buffer, l.nic = buffer, 3*l.rate
			for i := range 4 {
				l.add(Config{}).start(time.Duration(i) * 10 * ms)
			}
			r := l.measure(100*ms, 150*ms)
			if r.goodput < 0.98 || r.jain < 0.8 {
				t.Errorf("goodput %.3f, Jain %.3f, shares %.3f", r.goodput, r.jain, r.share)
			}
		})
	}
}

func TestLinkIncastKeepsGoing(t *testing.T) {
	// 16 MiB arrive at once at a queue of 128 KiB. Nearly all of it is lost, and the line
	// is full again within milliseconds. Windows of eight packets then meet increases made
	// for random loss, so a third is sent again.
	l := newLink(5)
	l.buffer, l.nic = 128<<10, l.rate
	for range 16 {
		l.add(Config{}).start(0)
	}
	if r := l.measure(0, 10*ms); r.goodput < 0.80 {
		t.Errorf("goodput %.3f in the first 10 ms", r.goodput)
	}
	if r := l.measure(10*ms, 50*ms); r.goodput < 0.98 || r.again > 0.4 {
		t.Errorf("goodput %.3f later, %.2f of it again", r.goodput, r.again)
	}
	for i, f := range l.flows {
		if f.arrived == 0 {
			t.Errorf("flow %d got nothing through", i)
		}
	}
}

func TestLinkBlackholeHeals(t *testing.T) {
	// F8, docs/faults.md rule 5: after an outage the line is full again.
	l := newLink(6)
	l.cut = func(now time.Duration) bool { return now > 20*ms && now < 1020*ms }
	f := l.add(Config{})
	f.start(0)
	l.run(1019 * ms)
	if f.w.Window() != defaultMTU {
		t.Errorf("window %d in the dark, want one MTU", f.w.Window())
	}
	if f.w.InFlight() > 2*defaultMTU {
		t.Errorf("%d bytes in flight in the dark", f.w.InFlight())
	}
	// The back-off of the model ends at 64 RTOs.
	if r := l.measure(400*ms, 100*ms); r.goodput < 0.99 {
		t.Errorf("goodput %.3f after the heal", r.goodput)
	}
}

func TestLinkAcksLate(t *testing.T) {
	// F36: with ACKs 200 ms late, at least 0.8 windows arrive per RTT.
	l := newLink(7)
	l.late = 200 * ms
	l.add(Config{}).start(0)
	r := l.measure(0, 10*time.Second)
	if got := r.goodput * float64(l.rate); got < 0.8*(1<<20)/0.2 {
		t.Errorf("%.1f MB/s, want 4.2", got/1e6)
	}
}

func TestLinkAcksRare(t *testing.T) {
	// F36: one ACK in 100 packets.
	l := newLink(7)
	l.trigger = 100 * defaultMTU
	l.add(Config{}).start(0)
	if r := l.measure(0, 100*ms); r.goodput < 0.9 {
		t.Errorf("goodput %.3f", r.goodput)
	}
}

func TestLinkAllMarked(t *testing.T) {
	// F35: every packet has CE.
	for _, marks := range []bool{false, true} {
		l := newLink(8)
		l.mark, l.loss = 1, 10
		l.add(Config{Marks: marks}).start(0)
		if r := l.measure(20*ms, 50*ms); r.goodput < 0.5 {
			t.Errorf("marks %v: goodput %.3f", marks, r.goodput)
		}
	}
}

func TestLinkJitterDoesNotCollapse(t *testing.T) {
	// F3: delays of 0 to 10 ms, and packets in any order.
	l := newLink(9)
	l.jitter, l.reorder = 10*ms, 1<<40
	f := l.add(Config{})
	f.start(0)
	r := l.measure(time.Second, time.Second)
	if f.w.Window() < 256<<10 || r.rtos > 50 {
		t.Errorf("window %d, goodput %.3f, %d timeouts", f.w.Window(), r.goodput, r.rtos)
	}
}

// The tables show the effects of loss and of other senders on the window. Columns are
// shares of the line's rate.
func TestLinkLossTable(t *testing.T) {
	if invariant.On {
		t.Skip("the table takes long with checks on; the tests above look at its corners")
	}
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "rate MB/s\tloss ‰\tgoodput\tsent again\ttimeouts\tbetween busy hosts\tsent again\ttimeouts\t")
	for _, rate := range []int64{125e6, 1250e6} {
		for _, loss := range []int{0, 1, 10, 50, 100, 300} {
			fmt.Fprintf(tw, "%d\t%d\t", rate/1e6, loss)
			for _, noise := range []bool{false, true} {
				l := newLink(1)
				if noise {
					l.hosts()
				}
				l.rate, l.loss = rate, loss
				l.add(Config{}).start(0)
				r := l.measure(20*ms, 60*ms)
				fmt.Fprintf(tw, "%.2f\t%.3f\t%d\t", r.goodput, r.again, r.rtos)
			}
			fmt.Fprintln(tw)
		}
	}
	tw.Flush()
	golden(t, "loss.txt", b.Bytes())
}

func TestLinkShareTable(t *testing.T) {
	if invariant.On {
		t.Skip("the table takes long with checks on; the tests above look at its corners")
	}
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "flows\tbuffer KiB\tgoodput\tJain\tsent again\tqueue µs\tbetween busy hosts\tJain\tsent again\tqueue µs\t")
	for _, buffer := range []int64{256 << 10, 4 << 20} {
		for _, n := range []int{1, 2, 4, 16, 64} {
			fmt.Fprintf(tw, "%d\t%d\t", n, buffer>>10)
			for _, noise := range []bool{false, true} {
				l := newLink(1)
				if noise {
					l.hosts()
				}
				l.buffer, l.nic = buffer, 3*l.rate
				for i := range n {
					l.add(Config{}).start(time.Duration(i) * us)
				}
				r := l.measure(50*ms, 50*ms)
				fmt.Fprintf(tw, "%.2f\t%.2f\t%.2f\t%d\t", r.goodput, r.jain, r.again, r.worst.Microseconds())
			}
			fmt.Fprintln(tw)
		}
	}
	tw.Flush()
	golden(t, "share.txt", b.Bytes())
}
