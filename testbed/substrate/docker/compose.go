package docker

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"text/template"

	"github.com/uetkit/uetkit/testbed/substrate"
)

// The compose file of a lab. Both docker-compose 1 and docker compose 2 read version 2.4,
// which allows a gateway for networks.
//
// The networks are not "internal": on such a bridge Docker drops packets whose addresses
// are not of its network, and packets from hosts behind the switch have such addresses. The
// networks still do not lead outside: they have no masquerade, Docker separates bridges,
// and hosts remove the route to the bridge.
var composeFile = template.Must(template.New("").Funcs(template.FuncMap{"q": quote}).Parse(`# {{.Spec.Name}}: made by the testbed; every host is on a network of its own, the switch on all.
version: "2.4"

services:
  switch:
    image: {{q .SwitchImage}}
    container_name: {{q (.Container "switch")}}
    hostname: switch
    command: [{{range $i, $a := .Spec.Switch}}{{if $i}}, {{end}}{{q ($.Arg $a)}}{{end}}]
    restart: "no"
    read_only: true
    cap_drop: [ALL]
    cap_add: [NET_RAW, NET_ADMIN, SYS_NICE] # packet sockets, offloads, being in time
    cpu_shares: 8192 # it is the network: hosts get what it leaves
    security_opt: ["no-new-privileges:true"]
    sysctls:
      net.ipv4.ip_forward: 0
    labels: &labels
{{- range .Labels}}
      {{index . 0}}: {{q (index . 1)}}
{{- end}}
    volumes:
      - {{q (printf "%s:/out" .Spec.Out)}}
    networks:
{{- range .Spec.Hosts}}
      {{.Name}}:
        ipv4_address: {{.Gateway}}
{{- end}}
{{range .Spec.Hosts}}
  {{.Name}}:
    image: {{q ($.Image .)}}
    container_name: {{q ($.Container .Name)}}
    hostname: {{.Name}}
    restart: "no"
    read_only: true
    cap_drop: [ALL]
    cap_add: [NET_ADMIN] # its route and its offloads
    security_opt: ["no-new-privileges:true"]
    labels: *labels
    environment:
      UET_OUT: /out
{{- if .Keys}}
      UET_KEYS: /keys
{{- end}}
{{- range .Env}}
      {{$.Var .}}
{{- end}}
    volumes:
      - {{q (printf "%s:/out" .Out)}}
{{- if .Keys}}
      - {{q (printf "%s:/keys:ro" .Keys)}}
{{- end}}
    networks:
      {{.Name}}:
        ipv4_address: {{.Addr}}
{{end}}
networks:
{{- range .Spec.Hosts}}
  {{.Name}}:
    name: {{q ($.Container .Name)}}
    driver: bridge
    driver_opts:
      com.docker.network.bridge.enable_ip_masquerade: "false"
      com.docker.network.driver.mtu: {{q $.MTU}}
    labels: *labels
    ipam:
      config:
        - subnet: {{.Net}}
          gateway: {{$.Bridge .}}
{{- end}}
`))

// A composition is the data of the template.
type composition struct {
	Spec        *substrate.Spec
	HostImage   string
	SwitchImage string
	MTU         string
	Labels      [][2]string
}

func compose(s *substrate.Spec, host, sw string, labels [][2]string) ([]byte, error) {
	var b bytes.Buffer
	err := composeFile.Execute(&b, &composition{s, host, sw, strconv.Itoa(s.MTU), labels})
	return b.Bytes(), err
}

// Container returns the name of a host's container, which is also that of its network.
func (c *composition) Container(host string) string { return c.Spec.Name + "-" + host }

func (c *composition) Image(h substrate.Host) string {
	if h.Image != "" {
		return h.Image
	}
	return c.HostImage
}

// Bridge returns the address of the bridge: the last of the network, because the first is
// the switch's.
func (c *composition) Bridge(h substrate.Host) string {
	a := h.Net.Masked().Addr().As4()
	return strconv.Itoa(int(a[0])) + "." + strconv.Itoa(int(a[1])) + "." + strconv.Itoa(int(a[2])) + ".254"
}

// Arg returns an argument of the switch.
func (c *composition) Arg(a string) string {
	return strings.ReplaceAll(a, substrate.OutArg, substrate.OutMount)
}

// Var returns a line of the environment.
func (c *composition) Var(v string) string {
	name, value, _ := strings.Cut(v, "=")
	return name + ": " + quote(value)
}

// quote returns a YAML string, which JSON's are. It escapes $, with which Compose begins a
// variable.
func quote(s string) string {
	b, err := json.Marshal(strings.ReplaceAll(s, "$", "$$"))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(b)
}
