// Package docker makes labs of containers with the command lines of Docker and Compose: one
// compose file per lab, images from scratch, one network per host, and the switch on all of
// them.
package docker

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/testbed/images"
	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/substrate"
)

// label marks everything that belongs to a lab, and the images. Its value is the lab's
// name.
const label = "org.uetkit.testbed"

// Repositories of the images.
const (
	hostImage   = "uetkit-testbed-host"
	switchImage = "uetkit-testbed-switch"
)

// Substrate makes labs of containers.
type Substrate struct {
	compose []string // command
	tag     string   // of the images
}

// Name is docker.
func (*Substrate) Name() string { return "docker" }

// run runs a command and returns its output; its error includes the error output.
func run(ctx context.Context, name string, args ...string) (string, error) {
	c := command(ctx, name, args...)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	defer attach(c)()
	err := c.Run()
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, args[0], err, lastLines(said.String(), 3))
	}
	return out.String(), nil
}

// command returns a command that is asked to end when ctx ends. So Compose completes or
// abandons what it is making, but makes nothing afterwards. The terminal's Ctrl-C reaches
// the runner only, which takes a half-made lab down.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 5 * time.Second
	return c
}

// lastLines returns the last n non-empty lines, joined.
func lastLines(s string, n int) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "" || strings.HasPrefix(l, "See '") })
	lines = lines[max(0, len(lines)-n):]
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
}

// Available checks for an engine and for Compose.
func (s *Substrate) Available(ctx context.Context) error {
	no := func(why string) error { return fmt.Errorf("containers: %s (%w)", why, substrate.ErrUnsupported) }
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if err := engine(ctx); err != nil {
		return no(err.Error())
	}
	for _, c := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if _, err := run(ctx, c[0], append(slices.Clone(c[1:]), "version")...); err == nil {
			s.compose = c
			return nil
		}
	}
	return no("there is no Compose: install docker-compose, or the plugin docker compose")
}

// answerLimit is how long the engine may take to answer on a busy machine.
const answerLimit = 30 * time.Second

// engine returns why no engine can be used.
func engine(ctx context.Context) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return errors.New("there is no docker command: install docker.io and docker-compose")
	}
	if host := os.Getenv("DOCKER_HOST"); host != "" && !strings.HasPrefix(host, "unix:") {
		return errors.New("DOCKER_HOST is " + host + ": labs need an engine on this machine, whose folders they share")
	}
	if _, err := run(ctx, "docker", "version", "--format", "{{.Server.Version}}"); err != nil {
		return silent(err)
	}
	return nil
}

// silent says in short why the engine does not answer.
func silent(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "permission denied"):
		return errors.New("this user may not use Docker: join the group docker, or be root")
	case strings.Contains(text, "Cannot connect to the Docker daemon"):
		return errors.New("no engine answers: start dockerd")
	}
	return fmt.Errorf("no engine answers: %w", err)
}

// Prepare builds the images, unless images of these programs exist.
func (s *Substrate) Prepare(ctx context.Context, bin string, w io.Writer) error {
	sum := sha256.New()
	for _, d := range [][]byte{images.Host, images.Switch} {
		sum.Write(d)
	}
	programs := []string{"testbed", "uetperf", "uetswitch"}
	libraries, err := librariesOf(ctx, bin, programs...)
	if err != nil {
		return err
	}
	files := slices.Clone(libraries)
	for _, p := range programs {
		files = append(files, filepath.Join(bin, p))
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(sum, f)
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	s.tag = hex.EncodeToString(sum.Sum(nil))[:12]
	for _, im := range []struct {
		repo  string
		file  []byte
		progs []string
	}{{hostImage, images.Host, []string{"testbed", "uetperf"}}, {switchImage, images.Switch, []string{"testbed", "uetswitch"}}} {
		name := im.repo + ":" + s.tag
		if _, err := run(ctx, "docker", "image", "inspect", name); err == nil {
			continue
		}
		fmt.Fprintf(w, "building image %s\n", name)
		if err := build(ctx, name, im.file, bin, im.progs, libraries); err != nil {
			return err
		}
	}
	return s.prune(ctx)
}

// build builds one image. Libraries have the places in it that they have here. Hard links make the
// build folder cheap.
func build(ctx context.Context, name string, dockerfile []byte, bin string, programs, libraries []string) error {
	dir, err := os.MkdirTemp(bin, "image")
	if errors.Is(err, fs.ErrPermission) { // the programs are installed where others may not write
		dir, err = os.MkdirTemp("", "image")
	}
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if len(libraries) > 0 {
		dockerfile = append(slices.Clone(dockerfile), "COPY libraries /\n"...)
	}
	for _, l := range libraries {
		to := filepath.Join(dir, "libraries", l)
		err := os.MkdirAll(filepath.Dir(to), 0o755)
		if err == nil {
			err = copyFile(l, to)
		}
		if err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), dockerfile, 0o644); err != nil {
		return err
	}
	for _, p := range programs {
		if err := linkOrCopy(filepath.Join(bin, p), filepath.Join(dir, p)); err != nil {
			return err
		}
	}
	args := []string{"build", "-q", "--force-rm", "-t", name, "--label", label + "=image", dir}
	c := command(ctx, "docker", args...)
	defer attach(c)()
	// The classic builder is in every engine: it needs no plugin and pulls nothing.
	c.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("docker build of %s: %w: %s", name, err, lastLines(string(out), 3))
	}
	return nil
}

// linkOrCopy gives a program a second name, or, on another file system, makes a second one.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return copyFile(from, to)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// prune removes the images of older programs, except those of the last hour, which another
// run may be about to use.
func (s *Substrate) prune(ctx context.Context) error {
	_, err := run(ctx, "docker", "image", "prune", "--all", "--force", "--filter", "label="+label+"=image", "--filter", "until=1h")
	return err
}

// RemoveImages removes the images of all programs. Without an engine there are none.
func RemoveImages(ctx context.Context) (removed []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*answerLimit)
	defer cancel()
	if err := engine(ctx); err != nil {
		return nil, fmt.Errorf("images: %w (%w)", err, substrate.ErrUnsupported)
	}
	out, err := run(ctx, "docker", "image", "ls", "--filter", "label="+label+"=image", "--format", "{{.Repository}}:{{.Tag}}")
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(out) {
		if _, e := run(ctx, "docker", "image", "rm", name); e != nil {
			err = errors.Join(err, e)
			continue
		}
		removed = append(removed, name)
	}
	return removed, err
}

// A dockerLab is a lab of containers.
type dockerLab struct {
	spec   *substrate.Spec
	exits  chan substrate.Exit
	cancel func() // of the events
	wg     sync.WaitGroup
}

// Up makes the networks and containers and starts them.
func (s *Substrate) Up(ctx context.Context, spec *substrate.Spec) (_ substrate.Lab, err error) {
	l := &dockerLab{spec: spec, exits: make(chan substrate.Exit, 256), cancel: func() {}}
	file := filepath.Join(spec.Dir, "docker-compose.yml")
	yml, err := compose(spec, hostImage+":"+s.tag, switchImage+":"+s.tag, [][2]string{{label, spec.Name}})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, yml, 0o644); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = l.Down(context.WithoutCancel(ctx))
		}
	}()
	if err := l.watch(); err != nil {
		return nil, err
	}
	for _, h := range append([]substrate.Host{{Role: "switch", Image: switchImage + ":" + s.tag}}, spec.Hosts...) {
		if h.Image == "" {
			h.Image = hostImage + ":" + s.tag
		}
		// Compose would ask a registry.
		if _, err := run(ctx, "docker", "image", "inspect", h.Image); err != nil {
			return nil, fmt.Errorf("image %s of the %s is not here: build or load it before (docker build, docker load); nothing is pulled", h.Image, h.Role)
		}
	}
	args := append(slices.Clone(s.compose[1:]), "--project-name", spec.Name, "--file", file, "up", "--detach", "--no-build", "--quiet-pull")
	if _, err := run(ctx, s.compose[0], args...); err != nil {
		return nil, explain(ctx, err, spec)
	}
	return l, nil
}

// explain replaces the usual errors of Docker by sentences that help.
func explain(ctx context.Context, err error, spec *substrate.Spec) error {
	text := err.Error()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case strings.Contains(text, "Pool overlaps"):
		return fmt.Errorf("addresses of %s (%s and on) are used by %s: remove it, or take others by --base", spec.Name, spec.Hosts[0].Net, overlapping(ctx, spec))
	case strings.Contains(text, "is already in use by container"), strings.Contains(text, "already exists"):
		return fmt.Errorf("a container or network of the name %s-… is there and not the testbed's: remove it (docker rm -f, docker network rm), or take other names by --prefix: %s", spec.Name, text)
	}
	return err
}

// overlapping returns the networks whose addresses overlap with the lab's.
func overlapping(ctx context.Context, spec *substrate.Spec) string {
	ids, err := run(ctx, "docker", "network", "ls", "-q")
	if err != nil {
		return "something else"
	}
	out, err := run(ctx, "docker", append([]string{"network", "inspect", "--format", "{{.Name}}{{range .IPAM.Config}} {{.Subnet}}{{end}}"}, strings.Fields(ids)...)...)
	if err != nil {
		return "something else"
	}
	var names []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		for _, subnet := range f[min(1, len(f)):] {
			for _, h := range spec.Hosts {
				if overlap(subnet, h.Net) && !slices.Contains(names, f[0]) {
					names = append(names, f[0])
				}
			}
		}
	}
	if len(names) == 0 {
		return "an interface of this machine (ip route shows it)"
	}
	return "the Docker network " + strings.Join(names, ", ") + " (docker network rm)"
}

func (l *dockerLab) container(host string) string { return l.spec.Name + "-" + host }

// watch listens to the engine's events for containers that end.
func (l *dockerLab) watch() error {
	ctx, cancel := context.WithCancel(context.Background())
	c := command(ctx, "docker", "events", "--filter", "label="+label+"="+l.spec.Name, "--filter", "event=die",
		"--since", strconv.FormatInt(l.spec.Since.Unix(), 10), "--format", "{{json .}}")
	out, err := c.StdoutPipe()
	if err != nil {
		cancel()
		return err
	}
	l.cancel = cancel
	started := make(chan error)
	l.wg.Go(func() {
		defer attach(c)()
		err := c.Start()
		started <- err
		if err != nil {
			return
		}
		defer func() { _ = c.Wait() }()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e struct {
				TimeNano int64 `json:"timeNano"`
				Actor    struct {
					Attributes map[string]string
				}
			}
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				continue
			}
			host, ok := strings.CutPrefix(e.Actor.Attributes["name"], l.spec.Name+"-")
			code, err := strconv.Atoi(e.Actor.Attributes["exitCode"])
			at := time.Unix(0, e.TimeNano)
			// --since has a resolution of seconds: events before the lab began are ignored.
			if !ok || err != nil || at.Before(l.spec.Since) {
				continue
			}
			l.exits <- substrate.Exit{Host: host, Code: code, At: at}
		}
	})
	if err := <-started; err != nil {
		return fmt.Errorf("docker events: %w", err)
	}
	return nil
}

// Exits reports containers that end.
func (l *dockerLab) Exits() <-chan substrate.Exit { return l.exits }

// Do does an action.
func (l *dockerLab) Do(ctx context.Context, host string, a substrate.Action) error {
	args := map[substrate.Action][]string{
		// All processes of it at once.
		substrate.Pause: {"pause"}, substrate.Resume: {"unpause"},
		substrate.Kill: {"kill", "--signal", "KILL"}, substrate.Start: {"start"}, substrate.Stop: {"stop", "--time", "20"},
	}[a]
	_, err := run(ctx, "docker", append(args, l.container(host))...)
	if err != nil && strings.Contains(err.Error(), "is not running") {
		return fmt.Errorf("%s %s: it has ended already", a, host)
	}
	return err
}

// Log asks the engine for the output of a host.
func (l *dockerLab) Log(ctx context.Context, host string, w io.Writer) error {
	c := command(ctx, "docker", "logs", l.container(host))
	defer attach(c)()
	c.Stdout, c.Stderr = w, w
	return c.Run()
}

// Shell returns a command line of docker exec.
func (l *dockerLab) Shell(host string) string { return "docker exec " + l.container(host) }

// Down removes the containers and networks.
func (l *dockerLab) Down(ctx context.Context) error {
	l.cancel()
	l.wg.Wait()
	// Repeat until nothing is left: what was being made when Compose was told to end may
	// come late.
	for range 3 {
		removed, err := remove(ctx, func(name string) bool { return name == l.spec.Name })
		if err != nil || len(removed) == 0 {
			return err
		}
	}
	return nil
}

// Leftovers removes everything that belongs to labs without an owner. Without an engine
// there is nothing to remove.
func (s *Substrate) Leftovers(ctx context.Context, prefix string, owned func(string) bool) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*answerLimit)
	defer cancel()
	if err := engine(ctx); err != nil {
		return nil, fmt.Errorf("containers: %w (%w)", err, substrate.ErrUnsupported)
	}
	return remove(ctx, func(name string) bool { return lab.IsLab(name, prefix) && !owned(name) })
}

// remove removes the containers and networks of the labs that are chosen.
func remove(ctx context.Context, chosen func(lab string) bool) (removed []string, err error) {
	for _, kind := range []struct {
		what     string
		list, rm []string
	}{
		{"container", []string{"ps", "--all", "--filter", "label=" + label, "--format", `{{.Names}} {{.Label "` + label + `"}}`}, []string{"rm", "--force", "--volumes"}},
		{"network", []string{"network", "ls", "--filter", "label=" + label, "--format", `{{.Name}} {{.Label "` + label + `"}}`}, []string{"network", "rm"}},
	} {
		out, e := run(ctx, "docker", kind.list...)
		if e != nil {
			return removed, errors.Join(err, e)
		}
		var names []string
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) == 2 && chosen(f[1]) {
				names = append(names, f[0])
				removed = append(removed, kind.what+" "+f[0])
			}
		}
		if len(names) == 0 {
			continue
		}
		if _, e := run(ctx, "docker", append(kind.rm, names...)...); e != nil {
			err = errors.Join(err, e)
		}
	}
	return removed, err
}
