package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// uetperf mesh, alltoall and incast --from measure eight containers, which only run a server
// each. One that is gone fails its pairs alone.
func TestMeshOfContainers(t *testing.T) {
	onLabs(t, func(t *testing.T, sub, bin string) {
		if sub != "docker" {
			t.Skip("it makes containers itself")
		}
		const hosts = 8
		name := testPrefix + "-mesh"
		docker := func(args ...string) string {
			t.Helper()
			out, err := exec.Command("docker", args...).CombinedOutput()
			if err != nil {
				t.Fatalf("docker %s: %v: %s", strings.Join(args, " "), err, out)
			}
			return string(out)
		}
		dir := t.TempDir()
		file := "FROM scratch\nCOPY uetperf /uetperf\nENTRYPOINT [\"/uetperf\"]\n"
		if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(bin, "uetperf"), filepath.Join(dir, "uetperf")); err != nil {
			t.Fatal(err)
		}
		build := exec.Command("docker", "build", "-q", "--force-rm", "-t", name, dir)
		build.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("docker build: %v: %s", err, out)
		}
		t.Cleanup(func() { docker("image", "rm", "-f", name) })
		docker("network", "create", "--subnet", testBase+"/24", name)
		t.Cleanup(func() { docker("network", "rm", name) })
		var addrs []string
		for i := range hosts {
			addr := strings.TrimSuffix(testBase, "0") + fmt.Sprint(10+i)
			box := fmt.Sprintf("%s-%d", name, i)
			docker("run", "-d", "--name", box, "--hostname", fmt.Sprintf("rack-%d", i), "--network", name, "--ip", addr, name, "serve", "--mesh")
			t.Cleanup(func() { docker("rm", "-f", box) })
			addrs = append(addrs, addr)
		}
		measure := func(args ...string) (r record.Record, said string) {
			t.Helper()
			out := t.TempDir()
			c := exec.Command("docker", append([]string{"run", "--rm", "--network", name, "-v", out + ":/out", name}, append(args, "-J", "/out/r.json")...)...)
			text, err := c.CombinedOutput()
			data, e := os.ReadFile(filepath.Join(out, "r.json"))
			if e == nil {
				e = json.Unmarshal(data, &r)
			}
			if e != nil || len(r.Runs) != 1 || r.Runs[0].Mesh == nil {
				t.Fatalf("%v: %v, %v: %s", args, err, e, text)
			}
			t.Logf("%s", text)
			return r, string(text)
		}

		r, _ := measure(append([]string{"mesh", "-t", "300ms", "-c"}, addrs...)...)
		if m := r.Runs[0].Mesh; !r.OK || len(m.Pairs) != hosts*(hosts-1) || m.Failed() {
			t.Errorf("%s: %d pairs", r.Error, len(m.Pairs))
		}
		for i, h := range r.Runs[0].Mesh.Hosts {
			if h.Host == nil || h.Host.Name != fmt.Sprintf("rack-%d", i) || h.WithinNS <= 0 {
				t.Errorf("host %d: %+v", i, h)
			}
		}
		r, _ = measure(append([]string{"alltoall", "-t", "2s"}, addrs...)...)
		if m := r.Runs[0].Mesh; !r.OK || len(m.Pairs) != hosts*(hosts-1) || m.Jain == nil {
			t.Errorf("%s: %+v", r.Error, m)
		}
		r, _ = measure("incast", addrs[0], "--from", strings.Join(addrs[1:], ","), "-t", "1s")
		if m := r.Runs[0].Mesh; !r.OK || len(m.Pairs) != hosts-1 || m.Failed() {
			t.Errorf("%s: %+v", r.Error, m)
		}

		docker("kill", fmt.Sprintf("%s-%d", name, 3))
		r, said := measure(append([]string{"mesh", "-t", "200ms", "--timeout", "3s"}, addrs...)...)
		m := r.Runs[0].Mesh
		if r.OK || len(m.Pairs) != hosts*(hosts-1) || m.Hosts[3].Error == "" || !strings.Contains(said, addrs[3]+": takes no part: ") {
			t.Errorf("with one host gone: ok %v, %d pairs\n%s", r.OK, len(m.Pairs), said)
		}
		for _, p := range m.Pairs {
			if gone := p.From == 3 || p.To == 3; gone != (p.Error != "") {
				t.Errorf("%+v", p)
			}
		}
	})
}
