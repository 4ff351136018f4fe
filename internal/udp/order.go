//go:build !race

package udp

// moverOf returns what Mover returns.
func moverOf(c *Conn) Mover { return c.io }
