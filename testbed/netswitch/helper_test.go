package netswitch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer is a log whose content outlives the switch.
type logBuffer struct {
	mu     sync.Mutex
	b      bytes.Buffer
	closed bool
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

// lines returns the lines of a closed log.
func (l *logBuffer) lines(t *testing.T) (lines []Line) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		t.Error("the log is not closed")
	}
	for sc := bufio.NewScanner(&l.b); sc.Scan(); {
		var x Line
		if err := json.Unmarshal(sc.Bytes(), &x); err != nil {
			t.Fatalf("%v in %s", err, sc.Text())
		}
		lines = append(lines, x)
	}
	return lines
}

// wait waits for a condition, at most five seconds.
func wait(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("that did not come true")
		}
		time.Sleep(time.Millisecond)
	}
}
