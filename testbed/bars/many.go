package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
)

// The rows H6 and H7 have many endpoints in a process, which share a completion queue.

// manyRate has n endpoints at each end, each with a peer of its own.
func manyRate(ep, progress string, n int) []string {
	return []string{"tsend", "-s", "64", "-W", "16", "-t", "2s", "-e", ep, "-P", strconv.Itoa(n), "--one-queue", "--progress", progress}
}

func manyRows() (rows []row) {
	const everywhere = "lo,veth"
	kinds := map[string]string{"rdm": "endpoints", "msg": "connections"}
	for _, ep := range []string{"rdm", "msg"} {
		for _, progress := range []string{"manual", "auto"} {
			rows = append(rows, row{name: "H6", nets: everywhere, what: fmt.Sprintf("rate 64 B, 1,000 %s on one queue, %s, against 10", kinds[ep], progress), cmd: "rate",
				uet: manyRate(ep, progress, 1000), clean: manyRate(ep, progress, 10), key: "Mmsgs", bar: 0.5, scale: 1})
		}
	}
	rows = append(rows,
		row{name: "H6", nets: "lo", what: "heap of each of 1,000 idle endpoints, KiB", hub: 1000, key: "opened", lower: true, absolute: true, bar: 32},
		row{name: "H6", nets: "lo", what: "heap of each of 1,000 endpoints that have received, KiB", hub: 1000, key: "used", lower: true, absolute: true},
		row{name: "H6", nets: "lo", what: "heap of each of 1,000 endpoints that share a port and have received, KiB", hub: 1000, sharePort: true, key: "used", lower: true, absolute: true, bar: 32})
	for _, c := range []struct {
		n   int
		bar float64
	}{{10, 0}, {100, 300}, {1000, 200}} {
		rows = append(rows, row{name: "H7", nets: everywhere, what: fmt.Sprintf("64 B from one endpoint to %d of another process, thousand/s", c.n), hub: c.n, key: "kmsgs", absolute: true, bar: c.bar},
			row{name: "H7", nets: everywhere, what: fmt.Sprintf("64 B from one endpoint to %d of another process that share a port, thousand/s", c.n), hub: c.n, sharePort: true, key: "kmsgs", absolute: true, bar: c.bar})
	}
	for _, c := range []struct {
		n   int
		bar float64
	}{{100, 300}, {1000, 200}} {
		rows = append(rows, row{name: "H7", nets: everywhere, what: fmt.Sprintf("rate 64 B, %d connections, thousand/s", c.n), cmd: "rate", uet: manyRate("msg", "manual", c.n), key: "kmsgs", absolute: true, bar: c.bar})
	}
	return rows
}

const hubProgram = "hub" // in the folder of the run

// hubRun runs the leaves at srv and the hub at cli, and returns a figure.
func hubRun(dir string, srv, cli side, r row) (float64, error) {
	bin := filepath.Join(dir, hubProgram)
	args := []string{bin, "-serve", "-addr", srv.addr + ":0"}
	if r.sharePort {
		args = append(args, "-share-port")
	}
	addr, stop, err := srv.serve(args...)
	if err != nil {
		return 0, err
	}
	defer stop()
	out, err := cli.command(bin, "-addr", addr, strconv.Itoa(r.hub)).Output()
	if err != nil {
		return 0, fmt.Errorf("hub: %w", err)
	}
	return hubFigure(out, r.key)
}

// hubFigure returns a figure of what the hub printed.
func hubFigure(out []byte, key string) (float64, error) {
	var f map[string]float64
	if err := json.Unmarshal(out, &f); err != nil {
		return 0, fmt.Errorf("hub's figures: %w in %q", err, out)
	}
	v, ok := f[key]
	if !ok {
		return 0, fmt.Errorf("no figure %q in %q", key, out)
	}
	return v, nil
}
