package main

import (
	"fmt"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/internal/units"
)

// watch prints a line of --watch: what passed since the last one, and how it stands. On a
// terminal it takes the place of the last one.
func (p *printer) watch(test string, size int64, w perf.Watched) {
	o := p.seen
	p.seen = w
	secs := (w.At - o.At).Seconds()
	if secs <= 0 {
		return
	}
	rate := float64(w.Msgs-o.Msgs) / secs
	per := func(now, before uint64) string { return little(float64(now-before)/secs, 0, 10, 1) }
	window, rtt := "-", "-"
	if w.Window > 0 {
		window = units.Bytes(int64(w.Window))
	}
	if w.RTT > 0 {
		rtt = w.RTT.Round(100 * time.Nanosecond).String()
	}
	short, long := "rtt "+rtt, "round trip "+rtt
	if w.P50 > 0 { // what the test measures tells more
		short = fmt.Sprintf("p50 %s p99 %s", brief(w.P50), brief(w.P99))
		long = fmt.Sprintf("latency p50 %s, p99 %s", brief(w.P50), brief(w.P99))
	}
	spurious := min(w.Spurious-o.Spurious, w.Resent-o.Resent)
	if p.tty {
		p.live = true
		spur := ""
		if spurious > 0 { // the line has no room for zeros
			spur = " spur " + per(spurious, 0)
		}
		fmt.Fprintf(p.w, "\r\x1b[K%.1fs %s %s: %s/s %s Gb/s %s win %s rtx %s%s ecn %s drop %s", // one line of 80 columns, or it could not be replaced
			w.At.Seconds(), test, units.Size(size), rateText(rate), gbpsText(rate*float64(size)*8), short, window, per(w.Resent, o.Resent), spur, per(w.Marked, o.Marked), per(w.Dropped, o.Dropped))
		return
	}
	fmt.Fprintf(p.w, "%7.1f s  %s %s: %s msg/s, %s Gb/s; %s, window %s; a second: resent %s%s, marked %s, dropped %s\n",
		w.At.Seconds(), test, units.Size(size), rateText(rate), gbpsText(rate*float64(size)*8), long, window, per(w.Resent, o.Resent), splitText(w.Resent-o.Resent, spurious, func(n uint64) string { return per(n, 0) }), per(w.Marked, o.Marked), per(w.Dropped, o.Dropped))
}

// watchMany returns the watch of a soak, which is called more often than it prints: a line every
// p.every, of the test that runs then.
func (p *printer) watchMany() func(test string, size int64, w perf.Watched) {
	var was string
	var at time.Duration
	shown := time.Now()
	return func(test string, size int64, w perf.Watched) {
		if is := fmt.Sprint(test, size); is != was || w.At < at { // another test
			was, p.seen = is, perf.Watched{}
		}
		if at = w.At; time.Since(shown) >= p.every {
			shown = time.Now()
			p.watch(test, size, w)
		}
	}
}

// brief formats a time with two or three digits.
func brief(d time.Duration) string {
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

// clear removes the live line of --watch.
func (p *printer) clear() {
	if p.live {
		p.live = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
