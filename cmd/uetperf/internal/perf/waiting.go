package perf

import (
	"fmt"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// stallEvery is how long nothing may progress before a run asks why.
const stallEvery = time.Second

// manyWaits is the most causes that are reported.
const manyWaits = 8

// manyLegs is the most legs that are asked. Each tells of a lane that they may share.
const manyLegs = 64

// A stall finds out why the legs of a run do not progress.
type stall struct {
	legs []*leg
	last int64
	said []string // causes at the last look without progress
	long time.Duration
}

// look is called every stallEvery.
func (s *stall) look() {
	n := int64(0)
	for _, l := range s.legs {
		n += l.Live.Load()
	}
	went := n != s.last
	s.last = n
	if went {
		return
	}
	if said := waitsOf(s.legs); said != nil {
		s.said = said
		s.long += stallEvery
	}
}

// waitsOf tells what the operations of legs wait for. For each cause it describes the
// oldest operation and counts the others. Of more than manyLegs legs it asks some.
func waitsOf(legs []*leg) []string {
	var first []uet.Waiting
	var more []int
	at := map[uet.WaitFor]int{}
	step := max(1, len(legs)/manyLegs)
	for i, l := range legs {
		if l == nil || i%step != 0 {
			continue
		}
		list := l.end.ep.Diagnose()
		if l.idle(list) {
			continue
		}
		for _, w := range list {
			if i, ok := at[w.Cause]; ok {
				if more[i]++; w.Age > first[i].Age {
					first[i] = w
				}
				continue
			}
			at[w.Cause] = len(first)
			first, more = append(first, w), append(more, 0)
		}
	}
	var out []string
	for i := range first {
		if len(out) == manyWaits {
			break
		}
		w := &first[i]
		s := w.String()
		if w.Cause == uet.WaitBehind { // a reader cannot know the context of the other message
			s = fmt.Sprintf("%v: behind another message, which waits for %v", sendText(w), w.BehindFor)
		}
		if more[i] > 0 {
			s += fmt.Sprintf(" (and %d more)", more[i])
		}
		out = append(out, s)
	}
	return out
}

func sendText(w *uet.Waiting) string {
	return fmt.Sprintf("send to %v, %v old, %d of %d bytes", w.Remote, w.Age.Truncate(time.Millisecond), w.Done, w.Total)
}

// idle reports whether a leg has nothing under way. A pausing ping has a receive posted all
// the same.
func (l *leg) idle(list []uet.Waiting) bool {
	if l.Spec.Test != traffic.Ping || l.Spec.Interval < stallEvery/2 {
		return len(list) == 0
	}
	for _, w := range list {
		if w.Flags&fi.Send != 0 {
			return false
		}
	}
	return true
}
