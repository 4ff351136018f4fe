// Package lab registers the labs of this machine. Each lab has a number, a folder, and a
// lock that lasts as long as the program that owns it. The folders of a killed program are
// left without a lock.
package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uetkit/uetkit/testbed/scenario"
)

// DefaultPrefix begins the names of labs, and so of all their containers, networks and
// namespaces.
const DefaultPrefix = "uettb"

// Max is how many labs there can be at once.
const Max = 12

// A Registry is the folder of all labs of a user with one prefix.
type Registry struct {
	Prefix string
	Base   netip.Prefix // of lab 0
	dir    string
}

// Open opens the registry, in dir if it is not "".
func Open(prefix string, base netip.Prefix, dir string) (*Registry, error) {
	if prefix == "" || strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyz") != "" || len(prefix) > 10 {
		return nil, fmt.Errorf("prefix %q is not 1 to 10 lower case letters", prefix)
	}
	last := scenario.Network(base, Max*scenario.MaxHosts-1)
	if !base.Addr().Is4() || !scenario.Range.Contains(base.Addr()) || !scenario.Range.Contains(last.Addr()) {
		return nil, fmt.Errorf("base %s is not in %s with room for %d networks behind it: take %s", base, scenario.Range, Max*scenario.MaxHosts, scenario.Base.Addr())
	}
	if dir == "" {
		// Not $TMPDIR: two programs must find the same registry.
		dir = fmt.Sprintf("/tmp/%s-testbed-%d", prefix, os.Getuid())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the folder of labs: %w", err)
	}
	if err := ours(dir); err != nil {
		return nil, fmt.Errorf("the folder of labs: %w; remove it, or take another name by --prefix", err)
	}
	return &Registry{Prefix: prefix, Base: base, dir: dir}, nil
}

// Dir is the registry's folder.
func (r *Registry) Dir() string { return r.dir }

// A Lab is one entry of the registry.
type Lab struct {
	Info
	Dir  string
	lock *os.File
}

// Info describes a lab to other programs: it is lab.json in the lab's folder.
type Info struct {
	Name      string         `json:"name"`
	Number    int            `json:"number"`
	Base      netip.Prefix   `json:"base"`
	Substrate string         `json:"substrate"`
	Scenario  string         `json:"scenario"`
	Seed      uint64         `json:"seed"`
	Started   time.Time      `json:"started"`
	PID       int            `json:"pid"`
	Hosts     []scenarioHost `json:"hosts"`
	// A kept lab has no owner until it is taken down.
	Kept bool `json:"kept"`
}

type scenarioHost struct {
	Name string     `json:"name"`
	Role string     `json:"role"`
	Addr netip.Addr `json:"addr"`
}

// SetHosts records the hosts.
func (i *Info) SetHosts(nodes []scenario.Node) {
	i.Hosts = nil
	for _, n := range nodes {
		i.Hosts = append(i.Hosts, scenarioHost{n.Name, n.Role, n.Addr})
	}
}

func (r *Registry) name(n int) string { return r.Prefix + strconv.Itoa(n) }

func (r *Registry) folder(name string) string { return filepath.Join(r.dir, name) }

// Claim reserves the first free number and locks it. Its folder is empty.
func (r *Registry) Claim() (*Lab, error) {
	for n := range Max {
		name := r.name(n)
		dir := r.folder(name)
		lock, err := tryLock(r.lockFile(name))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lab %s: %w", name, err)
		}
		if old, err := readInfo(dir); err == nil && old.Kept {
			_ = lock.Close()
			continue
		}
		if err = os.RemoveAll(dir); err == nil {
			err = os.MkdirAll(dir, 0o755)
		}
		if err != nil {
			_ = lock.Close()
			return nil, fmt.Errorf("lab %s: %w", name, err)
		}
		base := scenario.Network(r.Base, n*scenario.MaxHosts)
		return &Lab{Info: Info{Name: name, Number: n, Base: base, PID: os.Getpid(), Started: time.Now()}, Dir: dir, lock: lock}, nil
	}
	return nil, fmt.Errorf("all %d labs are in use: `testbed down` takes kept ones down", Max)
}

// The lock is beside the folder, so that the folder can be removed while locked.
func (r *Registry) lockFile(name string) string { return filepath.Join(r.dir, name+".lock") }

// Save writes lab.json.
func (l *Lab) Save() error {
	data, err := json.MarshalIndent(&l.Info, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.Dir, "lab.json"), data, 0o644)
}

// Release frees the number. A kept lab stays as it is.
func (l *Lab) Release() error {
	defer func() { _ = l.lock.Close() }()
	if l.Kept {
		return l.Save()
	}
	return os.RemoveAll(l.Dir)
}

func readInfo(dir string) (*Info, error) {
	data, err := os.ReadFile(filepath.Join(dir, "lab.json"))
	if err != nil {
		return nil, err
	}
	var i Info
	return &i, json.Unmarshal(data, &i)
}

// List returns the labs that are up, each with its folder: those that are kept and those
// whose owner runs.
func (r *Registry) List() (labs []Lab) {
	for n := range Max {
		dir := r.folder(r.name(n))
		if i, err := readInfo(dir); err == nil && r.Owned(r.name(n)) {
			labs = append(labs, Lab{Info: *i, Dir: dir})
		}
	}
	return labs
}

// Owned reports whether a lab is kept or has an owner that runs.
func (r *Registry) Owned(name string) bool {
	if i, err := readInfo(r.folder(name)); err == nil && i.Kept {
		return true
	}
	return r.Running(name)
}

// Running reports whether a lab has an owner that runs.
func (r *Registry) Running(name string) bool {
	lock, err := tryLock(r.lockFile(name))
	if err != nil {
		return true
	}
	_ = lock.Close()
	return false
}

// Forget removes the mark of a kept lab, so that nobody owns it any more.
func (r *Registry) Forget(name string) error {
	dir := r.folder(name)
	i, err := readInfo(dir)
	if err != nil {
		return err
	}
	i.Kept = false
	return (&Lab{Info: *i, Dir: dir}).Save()
}

// Sweep removes the folders of labs for which owned returns false.
func (r *Registry) Sweep(owned func(string) bool) {
	entries, _ := os.ReadDir(r.dir)
	for _, e := range entries {
		if e.IsDir() && IsLab(e.Name(), r.Prefix) && !owned(e.Name()) {
			_ = os.RemoveAll(r.folder(e.Name()))
		}
	}
}

// ErrInUse is wrapped by the error of Remove if something uses the folder.
var ErrInUse = errors.New("in use")

// Use keeps the registry's folder, and the programs that are built there, until release is called or
// the program ends.
func (r *Registry) Use() (release func(), err error) {
	for {
		if err := os.MkdirAll(r.dir, 0o755); err != nil {
			return nil, fmt.Errorf("the folder of labs: %w", err)
		}
		f, err := shareLock(r.useFile())
		switch {
		case errors.Is(err, errLocked), errors.Is(err, fs.ErrNotExist): // it is being removed
			time.Sleep(time.Millisecond)
			continue
		case err != nil:
			return nil, fmt.Errorf("the folder of labs: %w", err)
		}
		mine, err := f.Stat()
		if there, e := os.Stat(r.useFile()); err == nil && e == nil && os.SameFile(mine, there) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close() // it was removed meanwhile
	}
}

func (r *Registry) useFile() string { return filepath.Join(r.dir, "use.lock") }

// Remove removes the registry's folder with the programs that were built there. If a lab is up, or the
// folder is used, the error wraps ErrInUse.
func (r *Registry) Remove() error {
	lock, err := tryLock(r.useFile())
	if errors.Is(err, errLocked) {
		return fmt.Errorf("%s: a run has it: %w", r.dir, ErrInUse)
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if labs := r.List(); len(labs) > 0 {
		return fmt.Errorf("lab %s is up: %w", labs[0].Name, ErrInUse)
	}
	for n := range Max {
		if r.Running(r.name(n)) {
			return fmt.Errorf("lab %s is being made: %w", r.name(n), ErrInUse)
		}
	}
	return os.RemoveAll(r.dir)
}

// IsLab reports whether a name is that of a lab: the prefix and a number.
func IsLab(name, prefix string) bool {
	n, ok := strings.CutPrefix(name, prefix)
	return ok && n != "" && !slices.ContainsFunc([]byte(n), func(c byte) bool { return c < '0' || c > '9' })
}

var errLocked = errors.New("locked")
