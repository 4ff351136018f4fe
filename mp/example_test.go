package mp_test

import (
	"context"
	"fmt"
	"log"

	"github.com/uetkit/uetkit/mp"
)

// From Init to Allreduce. Below mpiexec each rank does this; by itself the program is a world
// of one.
func Example() {
	ctx := context.Background()

	w, err := mp.Init(ctx, mp.Config{}) // rank, size and peers from whatever launched the program
	if err != nil {
		log.Fatal(err)
	}
	c := w.World()
	x := []float64{float64(c.Rank() + 1)}
	if err := mp.Allreduce(ctx, c, x, x, mp.Sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ranks:", c.Size(), "sum:", x[0])
	err = w.Close(ctx)

	if err != nil {
		log.Fatal(err)
	}
	// Output: ranks: 1 sum: 1
}

// Messages between two ranks, here both the same.
func Example_sendAndReceive() {
	ctx := context.Background()
	w, err := mp.Init(ctx, mp.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close(ctx)
	c := w.World()

	in := make([]int32, 4)
	q, err := mp.Irecv(c, in, mp.AnySource, 7)
	if err != nil {
		log.Fatal(err)
	}
	if err := mp.Send(ctx, c, []int32{2, 3, 5}, c.Rank(), 7); err != nil {
		log.Fatal(err)
	}
	st, err := q.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	n, err := mp.Count[int32](st)
	fmt.Println(in[:n], "of rank", st.Source, err)
	// Output: [2 3 5] of rank 0 <nil>
}

// An operator of the program's own: the larger element and where it is.
func ExampleOp() {
	ctx := context.Background()
	w, err := mp.Init(ctx, mp.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close(ctx)
	c := w.World()

	maxLoc := func(dst, src []float64) { // pairs of value and rank
		for i := 0; i < len(dst); i += 2 {
			if src[i] > dst[i] {
				copy(dst[i:i+2], src[i:i+2])
			}
		}
	}
	x := []float64{3.5, float64(c.Rank())}
	err = mp.Allreduce(ctx, c, x, x, maxLoc, mp.InOrder)
	fmt.Println(x, err)
	// Output: [3.5 0] <nil>
}
