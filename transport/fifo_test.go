package transport

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A fifo behaves as a slice does.
func TestFifoModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var q fifo[int]
	var want []int
	for step := range 20000 {
		switch v := rng.IntN(10); {
		case v < 4+step/1000%2: // grows for a thousand steps, then shrinks for a thousand
			q.push(step)
			want = append(want, step)
		case v < 6:
			i := rng.IntN(len(want) + 1)
			q.insert(i, step)
			want = slices.Insert(want, i, step)
		case len(want) == 0:
		case v < 7:
			i := rng.IntN(len(want))
			q.drop(i)
			want = slices.Delete(want, i, i+1)
		default:
			if got := q.front(); got != want[0] {
				t.Fatalf("step %d: front is %d, want %d", step, got, want[0])
			}
			if got := q.pop(); got != want[0] {
				t.Fatalf("step %d: pop gives %d, want %d", step, got, want[0])
			}
			want = want[1:]
		}
		if q.len() != len(want) {
			t.Fatalf("step %d: %d elements, want %d", step, q.len(), len(want))
		}
		for i, v := range want {
			if got := q.at(i); got != v {
				t.Fatalf("step %d: element %d is %d, want %d", step, i, got, v)
			}
		}
	}
}
