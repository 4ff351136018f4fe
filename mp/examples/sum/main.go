// Command sum adds the ranks of a world. Start it with any launcher:
//
//	go build ./mp/examples/sum && mpiexec -n 4 ./sum
package main

import (
	"context"
	"fmt"

	"github.com/uetkit/uetkit/mp"
)

func main() {
	mp.Main(func(ctx context.Context, c *mp.Comm) error {
		x := []int64{int64(c.Rank())}
		if err := mp.Allreduce(ctx, c, x, x, mp.Sum); err != nil {
			return err
		}
		fmt.Printf("rank %d of %d: the sum is %d\n", c.Rank(), c.Size(), x[0])
		return nil
	})
}
