package stack

import (
	"os"
	"testing"
)

func TestPop(t *testing.T) {
	var s Stack
	s.Push(1)
	s.Push(2)
	if x, ok := s.Pop(); x != 2 || !ok {
		t.Errorf("%d, %v", x, ok)
	}
}

func TestEmpty(t *testing.T) {
	var s Stack
	if _, ok := s.Pop(); ok {
		t.Error("something in an empty stack")
	}
}

func TestSum(t *testing.T) {
	var s Stack
	s.Push(2)
	if s.Sum() != 2 {
		t.Error(s.Sum())
	}
}

func TestNothing(t *testing.T) {
	var s Stack
	s.Push(2)
	s.Pop()
}

func TestExits(t *testing.T) {
	var s Stack
	s.Push(2)
	if s.Len() != 1 {
		os.Exit(3)
	}
}

func TestRed(t *testing.T) { t.Error("always") }

func TestSkipped(t *testing.T) { t.Skip("never") }
