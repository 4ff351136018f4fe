// Package stack is what the tests of plants plant bugs in.
package stack

// A Stack keeps numbers.
type Stack struct{ items []int }

// Push puts x on top.
func (s *Stack) Push(x int) { s.items = append(s.items, x) }

// Len is how many there are.
func (s *Stack) Len() int { return len(s.items) }

// Pop takes the top away.
func (s *Stack) Pop() (x int, ok bool) {
	if len(s.items) == 0 {
		return 0, false
	}
	x = s.items[len(s.items)-1]
	s.items = s.items[:len(s.items)-1]
	return x, true
}

// Sum counts down.
func (s *Stack) Sum() (n int) {
	for i := len(s.items); i > 0; i-- {
		n += s.items[i-1]
	}
	return n
}
