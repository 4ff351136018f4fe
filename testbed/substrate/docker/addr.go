package docker

import "net/netip"

func overlap(subnet string, n netip.Prefix) bool {
	p, err := netip.ParsePrefix(subnet)
	return err == nil && p.Overlaps(n)
}
