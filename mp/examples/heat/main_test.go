package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

// spread computes steps with so many ranks and returns the checkpoint.
func spread(t *testing.T, file string, ranks, steps int) string {
	t.Helper()
	mptest.Run(t, ranks, func(c *mp.Comm) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		p, err := load(ctx, c, 40, file)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := p.run(ctx, steps); err != nil {
			t.Error(err)
		}
		if err := p.save(ctx, file); err != nil {
			t.Error(err)
		}
	})
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The plate is the same, bit by bit, with one rank, with seven, and in two runs of different
// numbers of ranks.
func TestSamePlate(t *testing.T) {
	dir := t.TempDir()
	one := spread(t, filepath.Join(dir, "one"), 1, 120)
	if seven := spread(t, filepath.Join(dir, "seven"), 7, 120); seven != one {
		t.Error("seven ranks have another plate than one")
	}
	spread(t, filepath.Join(dir, "two"), 3, 50)
	if two := spread(t, filepath.Join(dir, "two"), 5, 70); two != one {
		t.Error("a run that goes on has another plate")
	}
	if cold := spread(t, filepath.Join(dir, "cold"), 1, 0); cold == one {
		t.Error("no heat spread")
	}
}

// A file that is no checkpoint is an error.
func TestBadCheckpoint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	mptest.Run(t, 1, func(c *mp.Comm) {
		if _, err := load(context.Background(), c, 40, file); err == nil {
			t.Error("loaded")
		}
	})
}
