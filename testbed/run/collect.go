package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/testbed/agent"
	"github.com/uetkit/uetkit/testbed/report"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/substrate"
)

// collect ends the servers and the switch, and collects the files of all.
func (p *player) collect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downLimit)
	defer cancel()
	p.took = lastEnd(p.r)
	slices.SortStableFunc(p.r.Timeline, func(a, b result.Mark) int { return int(a.At - b.At) })
	p.r.Health.Stall = share(p.stalls, stalled(), time.Since(p.began))
	var errs []error
	if !p.o.Keep {
		for _, h := range p.r.Hosts {
			if _, ended := p.ended[h.Name]; !ended {
				errs = append(errs, p.stop(ctx, h.Name))
			}
		}
	}
	// No packet passes any more: the counters of the switch agree with its log.
	if st, err := p.sw.Stats(ctx); err == nil {
		p.r.Switch = &st.Fabric
		p.r.Health.SwitchDrops, p.r.Health.LateP99 = st.Health.Drops, st.Health.LateP99
		p.series(ctx)
		for _, w := range st.Health.Warnings {
			p.say("switch: %s", w)
		}
	}
	if _, ended := p.ended[substrate.SwitchName]; !ended && !p.o.Keep {
		errs = append(errs, p.stop(ctx, substrate.SwitchName))
	}
	dir := ""
	if p.o.Out != "" {
		dir = filepath.Join(p.o.Out, report.Folder(p.r))
		// Files of an earlier run would seem to be of this one.
		errs = append(errs, os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
	}
	for i := range p.r.Hosts {
		h := &p.r.Hosts[i]
		errs = append(errs, p.bring(ctx, h, dir))
	}
	sw := &result.Host{Name: substrate.SwitchName}
	errs = append(errs, p.bring(ctx, sw, dir))
	p.r.Files = sw.Files
	if dir != "" && p.o.Substrate.Name() == "docker" {
		if data, err := os.ReadFile(filepath.Join(p.spec.Dir, "docker-compose.yml")); err == nil {
			errs = append(errs, os.WriteFile(filepath.Join(dir, "docker-compose.yml"), data, 0o644))
			p.r.Files = append(p.r.Files, "docker-compose.yml")
		}
	}
	return errors.Join(errs...)
}

// stop ends a process in the regular way, and notes how it ended.
func (p *player) stop(ctx context.Context, host string) error {
	if err := p.lab.Do(ctx, host, substrate.Stop); err != nil {
		return err
	}
	for {
		select {
		case e := <-p.lab.Exits():
			p.ended[e.Host] = e
			for i := range p.r.Hosts {
				if p.r.Hosts[i].Name == e.Host && p.r.Hosts[i].Role == "server" {
					p.r.Hosts[i].Exit = &e.Code
				}
			}
			if e.Host == host {
				return nil
			}
		case <-time.After(stopLimit):
			return fmt.Errorf("%s does not end", host)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// series returns the samples of the switch, converted from its clock to the timeline.
func (p *player) series(ctx context.Context) {
	s, err := p.sw.Series(ctx)
	if err != nil {
		return
	}
	p.r.Series = s
}

// bring copies the files of a host into dir, if it is not "", and reads its records.
func (p *player) bring(ctx context.Context, h *result.Host, dir string) error {
	var log strings.Builder
	if err := p.lab.Log(ctx, h.Name, &log); err != nil {
		return fmt.Errorf("log of %s: %w", h.Name, err)
	}
	lines := strings.Split(strings.TrimRight(log.String(), "\n"), "\n")
	h.Log = strings.Join(lines[max(0, len(lines)-logTail):], "\n")
	from := p.spec.Out
	if i := slices.IndexFunc(p.spec.Hosts, func(s substrate.Host) bool { return s.Name == h.Name }); i >= 0 {
		from = p.spec.Hosts[i].Out
	}
	if h.Role == "client" {
		h.Record = records(from)
		if h.Record != nil {
			h.Command = h.Record.Command
		}
	}
	if dir == "" {
		return nil
	}
	name := h.Name + ".log"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(log.String()), 0o644); err != nil {
		return err
	}
	h.Files = append(h.Files, name)
	to := filepath.Join(dir, h.Name)
	files, err := copyTree(from, to)
	for _, f := range files {
		h.Files = append(h.Files, h.Name+"/"+f)
	}
	return err
}

// copyTree copies the regular files of a folder, except the marker files of the agent.
func copyTree(from, to string) (names []string, err error) {
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil || !d.Type().IsRegular() || rel == agent.Ready || rel == agent.Go {
			return err
		}
		names = append(names, filepath.ToSlash(rel))
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, rel)), 0o755); err != nil {
			return err
		}
		return copyFile(path, filepath.Join(to, rel))
	})
	return names, err
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// maxRecords bounds the records of one host.
const maxRecords = 64

// records joins the records of a client's traffic, 0.json, 1.json, …, into one.
func records(dir string) *record.Record {
	var all *record.Record
	for i := range maxRecords {
		data, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)+".json"))
		if err != nil {
			continue
		}
		var r record.Record
		if err := json.Unmarshal(data, &r); err != nil {
			r = record.Record{Schema: record.Schema, Error: fmt.Sprintf("%d.json is no record: %v", i, err)}
		}
		for k := range r.Runs {
			if r.Runs[k].Name == "" {
				r.Runs[k].Name = strings.TrimSpace(r.Config.Test + " " + r.Config.Op)
			}
		}
		if all == nil {
			all = &r
			continue
		}
		all.Runs = append(all.Runs, r.Runs...)
		all.Verdict = append(all.Verdict, r.Verdict...)
		all.OK = all.OK && r.OK
		if all.Error == "" {
			all.Error = r.Error
		}
	}
	return all
}

// stalled returns how long tasks of the machine have waited for a processor so far;
// negative if the kernel does not say.
func stalled() time.Duration {
	data, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return -1
	}
	for f := range strings.FieldsSeq(string(data)) {
		if v, ok := strings.CutPrefix(f, "total="); ok {
			us, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return -1
			}
			return time.Duration(us) * time.Microsecond // the line "some" is first
		}
	}
	return -1
}

// share returns the stalled share of a time, -1 if it is not known.
func share(before, after, in time.Duration) float64 {
	if before < 0 || after < 0 || in <= 0 {
		return -1
	}
	return float64(after-before) / float64(in)
}

// machine describes the machine that the testbed runs on.
func machine() record.Host {
	h := record.Host{OS: runtime.GOOS, CPUs: runtime.NumCPU()}
	h.Name, _ = os.Hostname()
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Kernel = strings.TrimSpace(string(data))
	}
	return h
}
