// Command trial joins the world of whatever launched it, reads the cards of all ranks and
// leaves. The tests of package boot run it below real launchers.
//
//	trial              prints "rank R of N by LAUNCHER: ok in D"
//	trial abort R      rank R aborts with code 3 when all are there, the others wait for that
//	trial missing R    rank R does not come
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/uetkit/uetkit/mp/internal/boot"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "trial:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	start := time.Now()
	what, who := "", -1
	if len(args) == 2 {
		var err error
		what = args[0]
		if who, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
	}
	w, err := boot.Find(ctx, boot.Options{})
	if err != nil {
		return err
	}
	if what == "missing" && w.Rank == who {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := w.Put(ctx, card(w.Rank)); err != nil {
		w.Abort(1, err.Error()) // a launcher may not mind that one process exits
	}
	if what == "abort" {
		if w.Rank == who {
			w.Abort(3, "as it was told")
		}
		<-ctx.Done()
		return ctx.Err()
	}
	for i := range w.Size {
		rank := (w.Rank + i) % w.Size
		c, err := w.Card(ctx, rank)
		if err != nil {
			return err
		}
		if !bytes.Equal(c, card(rank)) {
			return fmt.Errorf("rank %d has the card %q of rank %d", w.Rank, c, rank)
		}
	}
	took := time.Since(start).Round(time.Microsecond)
	if err := w.Finalize(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "rank %d of %d by %s: ok in %v\n", w.Rank, w.Size, w.Launcher, took)
	return nil
}

// card is the card of a rank: longer than what PMI takes in one value.
func card(rank int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("card of %d, with blanks; and = ", rank)), 50)
}
