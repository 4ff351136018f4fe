package docker

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/testbed/substrate"
)

func TestCompose(t *testing.T) {
	s := &substrate.Spec{
		Name: "uettb0", Dir: "/tmp/x", Out: "/tmp/x/switch", MTU: 4096, Switch: []string{"--config", substrate.OutArg + "/config.json"},
		Hosts: []substrate.Host{
			{
				Name: "s", Role: "server", Net: netip.MustParsePrefix("198.18.16.0/24"), Addr: netip.MustParseAddr("198.18.16.2"),
				Gateway: netip.MustParseAddr("198.18.16.1"), Out: "/tmp/x/s", Keys: "/tmp/x/keys", Env: []string{`UET_TRAFFIC=[{"Size":"$1"}]`},
			},
			{Name: "c", Role: "client", Image: "theirs:1", Net: netip.MustParsePrefix("198.18.17.0/24"), Addr: netip.MustParseAddr("198.18.17.2"), Gateway: netip.MustParseAddr("198.18.17.1"), Out: "/tmp/x/c"},
		},
	}
	yml, err := compose(s, "host:1", "switch:1", [][2]string{{label, s.Name}})
	if err != nil {
		t.Fatal(err)
	}
	text := string(yml)
	for want, n := range map[string]int{
		`image: "host:1"`: 1, `image: "switch:1"`: 1, `image: "theirs:1"`: 1,
		"cap_drop: [ALL]": 3, "net.ipv4.ip_forward: 0": 1,
		`command: ["--config", "/out/config.json"]`: 1,
		"ipv4_address: 198.18.16.1\n":               1, "ipv4_address: 198.18.16.2\n": 1, "ipv4_address: 198.18.17.1\n": 1,
		"gateway: 198.18.17.254": 1, `com.docker.network.driver.mtu: "4096"`: 2, `enable_ip_masquerade: "false"`: 2,
		`- "/tmp/x/keys:/keys:ro"`: 1, "UET_KEYS: /keys": 1,
		`UET_TRAFFIC: "[{\"Size\":\"$$1\"}]"`: 1, // Compose would expand a single $
		`name: "uettb0-c"`:                    2, // the container and the network
		`org.uetkit.testbed: "uettb0"`:        1, "labels: *labels": 4,
	} {
		if got := strings.Count(text, want); got != n {
			t.Errorf("%d times %q, want %d in\n%s", got, want, n, text)
		}
	}
	if strings.Contains(text, "privileged") || strings.Contains(text, "SYS_ADMIN") {
		t.Error("more rights than needed")
	}
}

func TestLastLines(t *testing.T) {
	if got := lastLines("a\n\nb  c\nSee 'docker run --help'.\nd\n", 2); got != "b c d" {
		t.Errorf("%q", got)
	}
}

func TestOverlap(t *testing.T) {
	n := netip.MustParsePrefix("198.18.16.0/24")
	for subnet, want := range map[string]bool{"198.18.0.0/15": true, "198.18.16.128/25": true, "198.18.17.0/24": false, "fd00::/8": false, "": false} {
		if got := overlap(subnet, n); got != want {
			t.Errorf("%q: %v", subnet, got)
		}
	}
}
