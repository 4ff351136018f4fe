package perf

import "github.com/uetkit/uetkit/uet"

// Probe opens an endpoint as info describes it and reports what the system gave.
func Probe(info *uet.Info) (uet.PathInfo, error) {
	in := *info
	in.SrcAddr.Port = 0
	e, err := openEnd(&in, 64)
	if err != nil {
		return uet.PathInfo{}, err
	}
	defer e.close()
	return e.ep.PathInfo()
}
