package cntr

import "github.com/uetkit/uetkit/internal/wait"

// The provider's side as methods of Counter, for tests.

func (c *Counter) Bind(p wait.Progress) error { return (*provider)(c).Bind(p) }
func (c *Counter) Unbind(p wait.Progress)     { (*provider)(c).Unbind(p) }
func (c *Counter) Count(n, bytes uint64)      { (*provider)(c).Count(n, bytes) }
