package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// client is the address of the clients' namespace.
	client = "198.18.252.9"
	// server6 is an IPv6 address of the servers' namespace, client6 one of the other.
	server6, client6 = "fd00:7565::1", "fd00:7565::9"
	// The namespaces, and the ends of the veth pair.
	nsServer, nsClient = "stranger-s", "stranger-c"
	// ports are those that the firewall lets through beside the control ports.
	ports = "20000-20063"
	// startTime is how long a server may take to start, endTime an interrupted command to end.
	startTime, endTime = 10 * time.Second, 20 * time.Second
)

// A place is where the stranger works.
type place struct {
	dir   string // work folder
	bin   string // where the programs were installed
	top   string // a clone of the repository
	limit time.Duration
	serve []*exec.Cmd
	had   []string // images of labs that were there before
}

// settle installs the programs and makes the namespaces.
func settle(ctx context.Context, limit time.Duration) (s *place, err error) {
	dir, err := os.MkdirTemp("", "stranger")
	if err != nil {
		return nil, err
	}
	s = &place{dir: filepath.Join(dir, "work"), bin: filepath.Join(dir, "bin"), top: filepath.Join(dir, "uetkit"), limit: limit, had: images()}
	defer func() {
		if err != nil {
			s.leave()
		}
	}()
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return s, err
	}
	if out, err := exec.CommandContext(ctx, "git", "clone", "-q", "--shared", ".", s.top).CombinedOutput(); err != nil {
		return s, fmt.Errorf("git clone: %w: %s", err, out)
	}
	install := exec.CommandContext(ctx, "go", "install", "./cmd/...")
	install.Dir = s.top
	install.Env = append(os.Environ(), "GOBIN="+s.bin, "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		return s, fmt.Errorf("go install ./cmd/...: %w: %s", err, out)
	}
	fmt.Printf("installed   go install ./cmd/...\n")
	for _, args := range append([][]string{
		{"netns", "add", nsServer}, {"netns", "add", nsClient},
		{"link", "add", "strange0", "netns", nsClient, "type", "veth", "peer", "name", "strange1", "netns", nsServer},
		{"-n", nsClient, "addr", "add", client + "/24", "dev", "strange0"},
		{"-n", nsClient, "addr", "add", client6 + "/64", "dev", "strange0", "nodad"}, {"-n", nsServer, "addr", "add", server6 + "/64", "dev", "strange1", "nodad"},
		{"-n", nsServer, "addr", "add", "fe80::7565/64", "dev", "strange1", "nodad"},
		{"-n", nsClient, "link", "set", "strange0", "up"}, {"-n", nsClient, "link", "set", "lo", "up"},
		{"-n", nsServer, "link", "set", "strange1", "up"}, {"-n", nsServer, "link", "set", "lo", "up"},
	}, serverAddrs()...) {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return s, fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return s, nil
}

func serverAddrs() (out [][]string) {
	for _, a := range addrs {
		out = append(out, []string{"-n", nsServer, "addr", "add", a + "/24", "dev", "strange1"})
	}
	return out
}

// images returns the images of labs; none without Docker.
func images() []string {
	out, err := exec.Command("docker", "image", "ls", "--filter", "label=org.uetkit.testbed=image", "--format", "{{.Repository}}:{{.Tag}}").Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}

// leave removes what settle made, and the images that were built since.
func (s *place) leave() {
	s.stop()
	for _, name := range images() {
		if !slices.Contains(s.had, name) {
			_ = exec.Command("docker", "image", "rm", name).Run() // one that a lab uses stays
		}
	}
	for _, ns := range []string{nsServer, nsClient} {
		_ = exec.Command("ip", "netns", "del", ns).Run()
	}
	_ = os.RemoveAll(filepath.Dir(s.bin))
}

// command makes a command of the shell in a namespace, "" meaning none, in a process group of its own.
func (s *place) command(ns, dir, text string) *exec.Cmd {
	args := []string{"bash", "-c", "exec " + text}
	if ns != "" {
		args = append([]string{"ip", "netns", "exec", ns}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOBIN="+s.bin, "PATH="+s.bin+":"+os.Getenv("PATH"))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

// watched is an output that tells when it contains a text.
type watched struct {
	mu   sync.Mutex // guards b
	b    bytes.Buffer
	want string
	seen chan struct{}
	once sync.Once
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.b.Write(b)
	if strings.Contains(w.b.String(), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// server starts a server in its namespace and waits until it serves.
func (s *place) server(text string) error {
	c := s.command(nsServer, s.dir, text)
	out := &watched{want: "serves at ", seen: make(chan struct{})}
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		return err
	}
	s.serve = append(s.serve, c)
	select {
	case <-out.seen:
		return nil
	case <-time.After(startTime):
		return fmt.Errorf("%s does not serve: %s", text, out)
	}
}

// stop ends the servers.
func (s *place) stop() {
	for _, c := range s.serve {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		_ = c.Wait()
	}
	s.serve = nil
}

// firewall measures behind a firewall that lets only the named ports through, looks at what was measured,
// and takes the firewall away.
func (s *place) firewall(ctx context.Context) error {
	rules := "add table inet fw\nadd chain inet fw in { type filter hook input priority 0; policy drop; }\n" +
		"add rule inet fw in iif lo accept\nadd rule inet fw in udp dport { 4793-4798, " + ports + " } accept\n"
	for _, ns := range []string{nsServer, nsClient} {
		c := exec.CommandContext(ctx, "ip", "netns", "exec", ns, "nft", "-f", "-")
		c.Stdin = strings.NewReader(rules)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
	}
	if err := s.server("uetperf serve --data-ports " + ports + " --listen " + addrs[0]); err != nil {
		return err
	}
	defer s.stop()
	for _, step := range []struct {
		text string
		may  []int
	}{
		{"uetperf doctor HOST --data-ports " + ports, []int{0, 1}},
		{"uetperf ping HOST -n 3 -i 10ms --pcap fw-ping.pcapng --data-ports " + ports, []int{0}},
		{"uetperf lat HOST tsend -s 8:4K:*8 -n 1000 --data-ports " + ports + " -J fw-lat.json", []int{0}},
		{"uetperf bw HOST -t 1s -c --data-ports " + ports + " -J fw-bw.json --pcap fw.pcapng", []int{0}},
		{"uetperf bw HOST -t 1s --paths 4 --data-ports " + ports + " -J fw-bw2.json", []int{0}},
		{"uetperf report fw-lat.json fw-bw.json -o fw.html", []int{0}},
		{"uetperf compare fw-bw.json fw-bw2.json", []int{0}},
		{"uetdump --summary fw.pcapng", []int{0}},
		// Other ports are shut: the client that takes any is told so, and does not wait for ever.
		{"uetperf bw HOST -t 1s --timeout 3s", []int{1, 3}},
	} {
		if !s.try(ctx, "firewall", nsClient, s.dir, strings.ReplaceAll(step.text, "HOST", addrs[0]), step.may, time.Minute) {
			return errors.New("not as promised behind the firewall")
		}
	}
	for _, ns := range []string{nsServer, nsClient} {
		if out, err := exec.CommandContext(ctx, "ip", "netns", "exec", ns, "nft", "flush", "ruleset").CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
	}
	return nil
}

// families measures by addresses of both families, by one that is of a link, and by the names of
// interfaces, with a server that listens on all of its addresses.
func (s *place) families(ctx context.Context) error {
	const scoped = "fe80::7565%strange0"
	steps := func(server string, texts ...string) error {
		if err := s.server(server); err != nil {
			return err
		}
		defer s.stop()
		for _, text := range texts {
			if !s.try(ctx, "families", nsClient, s.dir, text, []int{0}, time.Minute) {
				return errors.New("not as promised with addresses of both families")
			}
		}
		return nil
	}
	return errors.Join(
		steps("uetperf serve",
			"uetperf ping "+addrs[0]+" -n 3 -i 10ms", "uetperf ping "+server6+" -n 3 -i 10ms", "uetperf ping ["+server6+"]:4793 -n 3 -i 10ms",
			"uetperf ping "+scoped+" -n 3 -i 10ms", "uetperf bw ["+scoped+"]:4793 -n 1000 -c", "uetperf lat "+scoped+" -s 64 -n 1000 -e msg",
			"uetperf bw "+server6+" -n 1000 -c --paths 4", "uetperf rr "+server6+" -t 200ms --mode uud", "uetperf doctor "+scoped+" -q",
			"uetperf ping -d strange0 "+addrs[0]+" -n 3 -i 10ms", "uetperf bw -d strange0 "+server6+" -n 1000 -c", "uetperf soak -d strange0 "+scoped+" -t 3s",
			"uetperf info -d strange0", "uetperf doctor -d strange0 -q", "uetperf bw "+scoped+" -n 100 --pcap six.pcapng", "uetdump --summary six.pcapng"),
		steps("uetperf serve -d strange1 --mesh",
			"uetperf ping "+server6+" -n 3 -i 10ms", "uetperf mesh "+addrs[0]+" "+addrs[1]+" -t 50ms -c", "uetperf mesh "+server6+" "+addrs[1]+" -t 50ms -c"),
		steps("uetperf serve --listen '[::]:4793'", "uetperf ping "+addrs[0]+" -n 3 -i 10ms", "uetperf ping "+server6+" -n 3 -i 10ms"),
		steps("uetperf serve --listen '"+server6+"'", "uetperf ping "+server6+" -n 3 -i 10ms"),
		steps("uetperf serve --listen 0.0.0.0:4793", "uetperf ping "+addrs[0]+" -n 3 -i 10ms"),
	)
}

// play runs a command of a page and reports whether it ended as promised.
func (s *place) play(ctx context.Context, l line) bool {
	text := l.filled()
	where := fmt.Sprintf("%s:%d", l.Page, l.Line)
	switch {
	case strings.HasPrefix(text, "go run "):
		return s.try(ctx, where, "", s.top, text, l.may(), 8*s.limit)
	case strings.HasPrefix(text, "go "): // it builds everything, perhaps on a busy host
		return s.try(ctx, where, "", s.top, text, l.may(), 60*s.limit)
	case strings.HasPrefix(text, "uetperf serve") && l.Inline:
		// Nothing that follows is for this server.
		s.stop()
		err := s.keys(ctx, text)
		if err == nil {
			err = s.server(text)
		}
		s.stop()
		fmt.Printf("%-11s %s: %s\n", word(err == nil), where, text)
		if err != nil {
			fmt.Printf("  %v\n", err)
		}
		return err == nil
	case strings.HasPrefix(text, "uetperf serve"):
		// It is the server of the commands that follow.
		s.stop()
		err := s.server(text)
		fmt.Printf("%-11s %s: %s\n", word(err == nil), where, text)
		if err != nil {
			fmt.Printf("  %v\n", err)
		}
		return err == nil
	case strings.HasPrefix(text, "tshark "):
		return s.try(ctx, where, "", s.top, strings.ReplaceAll(text, "file.pcap", filepath.Join(s.dir, "fw-ping.pcapng")), l.may(), 10*s.limit)
	case strings.HasPrefix(text, "testbed "):
		return s.try(ctx, where, "", s.dir, text, l.may(), 10*s.limit)
	}
	if err := s.serving(text); err != nil {
		fmt.Printf("%-11s %s: %s\n  %v\n", word(false), where, text, err)
		return false
	}
	if strings.Contains(text, "lat2.json") { // what somebody measured on another day
		for _, name := range []string{"lat", "bw"} {
			b, err := os.ReadFile(filepath.Join(s.dir, name+".json"))
			if err == nil {
				err = os.WriteFile(filepath.Join(s.dir, name+"2.json"), b, 0o644)
			}
			if err != nil {
				fmt.Printf("  %v\n", err)
				return false
			}
		}
	}
	return s.try(ctx, where, nsClient, s.dir, text, l.may(), s.limit)
}

// keys makes the FOLDER of keys that a command needs.
func (s *place) keys(ctx context.Context, text string) error {
	const folder = "FOLDER"
	if _, err := os.Stat(filepath.Join(s.dir, folder)); err == nil || !strings.Contains(text, "--keys "+folder) {
		return nil
	}
	c := exec.CommandContext(ctx, filepath.Join(s.bin, "uetperf"), "keys", folder)
	c.Dir = s.dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("uetperf keys: %w: %s", err, out)
	}
	return nil
}

// serving starts the servers, unless as many run as a command needs.
func (s *place) serving(text string) error {
	least := 0
	switch {
	case strings.Contains(text, addrs[1]):
		least = len(addrs)
	case strings.Contains(text, addrs[0]):
		least = 1
	}
	if len(s.serve) >= least {
		return nil
	}
	s.stop()
	for _, a := range addrs {
		if err := s.server("uetperf serve --mesh --listen " + a); err != nil {
			return err
		}
	}
	return nil
}

func word(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAILED"
}

// try runs a command and reports whether it ended with one of the exit codes, or, interrupted after the
// limit, as an interrupted one.
func (s *place) try(ctx context.Context, where, ns, dir, text string, may []int, limit time.Duration) bool {
	c := s.command(ns, dir, text)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	begin := time.Now()
	if err := c.Start(); err != nil {
		fmt.Printf("%-11s %s: %s\n  %v\n", word(false), where, text, err)
		return false
	}
	done := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(done)
	}()
	interrupted := false
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(limit):
		interrupted = true
	}
	if ctx.Err() != nil || interrupted {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGINT)
		select {
		case <-done:
		case <-time.After(endTime):
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			<-done
			fmt.Printf("%-11s %s: %s\n  it does not end within %v of an interrupt\n", word(false), where, text, endTime)
			return false
		}
	}
	code := c.ProcessState.ExitCode()
	// go run ends with 1 whatever the exit code of the program. It and filters may end by the signal itself, which is -1.
	ok := slices.Contains(may, code) || interrupted && (code == 130 || strings.HasPrefix(text, "go run") && (code == 1 || code == -1) || strings.HasPrefix(text, "uetdump") && code == -1)
	said := fmt.Sprintf("%.1f s", time.Since(begin).Seconds())
	if interrupted {
		said += ", interrupted"
	}
	fmt.Printf("%-11s %s: %s (%s)\n", word(ok), where, text, said)
	if !ok {
		fmt.Printf("  exit status %d\n  %s\n", code, strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "\n  "))
	}
	return ok
}
