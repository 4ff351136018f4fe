//go:build !unix

package wait

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
)

// descriptor stands for what this system does not have.
type descriptor struct{}

func (n *native) openFD() error {
	return fmt.Errorf("wait object %v on this system: %w", fi.WaitFD, fi.EINVAL) // R-EQ-15
}

func (d *descriptor) number() int { return -1 }
func (d *descriptor) raise()      {}
func (d *descriptor) lower()      {}
func (d *descriptor) close()      {}
