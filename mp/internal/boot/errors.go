package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrFinalized is the error of every call after Finalize.
var ErrFinalized = errors.New("boot: the world is finalized")

// errDeadline is the cause of a context that ended by Options.Timeout.
var errDeadline = errors.New("boot: the time is up")

// A ConfigError is a variable of the environment, or an argument, that cannot be.
type ConfigError struct {
	What, Value string
	Why         string
}

func (e *ConfigError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("boot: %s: %s", e.What, e.Why)
	}
	return fmt.Sprintf("boot: %s=%s: %s", e.What, clip(e.Value), e.Why)
}

// A PMIError is what a PMI server answered, or did not.
type PMIError struct {
	// Cmd is the command that was asked.
	Cmd string
	// RC is the return code of the server, 0 if the failure is another.
	RC  int
	Why string
	Err error // of the connection, if it is that
}

func (e *PMIError) Error() string {
	s := "boot: PMI: " + e.Cmd + ": " + e.Why
	if e.RC != 0 {
		s += fmt.Sprintf(" (rc %d)", e.RC)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *PMIError) Unwrap() error { return e.Err }

// A Refusal says why a root did not take a rank.
type Refusal string

// The reasons of a root.
const (
	RefusedVersion Refusal = "version" // another release of this protocol
	RefusedJob     Refusal = "job"     // the root is another job's
	RefusedSize    Refusal = "size"    // the ranks differ about the size of the world
	RefusedRank    Refusal = "rank"    // no rank of the world
	RefusedTwice   Refusal = "twice"   // another process has this rank
	RefusedLate    Refusal = "late"    // the root has given up
)

// A RootError is a meeting at the root that failed.
type RootError struct {
	Addr string
	// Refused is set if a root answered and said no.
	Refused Refusal
	Why     string
	Err     error // of the connection, if it is that
}

func (e *RootError) Error() string {
	s := "boot: root " + e.Addr + ": " + e.Why
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *RootError) Unwrap() error { return e.Err }

// A TwiceError says that two processes took themselves for the same rank.
type TwiceError struct{ Rank int }

func (e *TwiceError) Error() string {
	return fmt.Sprintf("boot: another process is rank %d, too: its card is there instead of this one's", e.Rank)
}

// A MissingError says that ranks had not come when the time was up.
type MissingError struct {
	// Ranks are those that are missing, at most a thousand. Empty: the launcher does not tell.
	Ranks []int
	// Hosts says that among Ranks are others on the hosts of those that are missing, because
	// the launcher knows no better.
	Hosts bool
	Size  int
	After time.Duration
	// Notes say whom the root has turned away, and who came and left again.
	Notes []string
}

func (e *MissingError) Error() string {
	after := e.After.Round(time.Millisecond)
	if len(e.Ranks) == 0 {
		return fmt.Sprintf("boot: after %v not all %d ranks have come, and the launcher does not tell who is missing", after, e.Size)
	}
	missing := "are missing"
	if e.Hosts {
		missing = "are missing, or wait on the host of one that is"
	}
	s := fmt.Sprintf("boot: after %v %d of %d ranks %s: %s", after, len(e.Ranks), e.Size, missing, ranks(e.Ranks))
	for _, n := range e.Notes {
		s += "; " + n
	}
	return s
}

// Timeout says that time was the reason, as net.Error has it.
func (e *MissingError) Timeout() bool { return true }

// ranks writes sorted ranks as "0-2,5", at most ten ranges.
func ranks(list []int) string {
	var b strings.Builder
	for i, n := 0, 0; i < len(list); n++ {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if n > 0 {
			b.WriteByte(',')
		}
		if n == 10 {
			b.WriteString("…")
			break
		}
		fmt.Fprint(&b, list[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", list[j])
		}
		i = j + 1
	}
	return b.String()
}

// stopped is the error of a wait that its context ended.
func stopped(ctx context.Context, what string, args ...any) error {
	return fmt.Errorf("boot: waiting for "+what+": %w", append(slices.Clone(args), context.Cause(ctx))...)
}

// timeUp says whether ctx ended by Options.Timeout.
func timeUp(ctx context.Context) bool { return context.Cause(ctx) == errDeadline }

// clip shortens a text of a stranger to what a line of an error can bear.
func clip(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
