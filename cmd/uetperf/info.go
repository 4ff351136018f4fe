package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/uet"
	_ "github.com/uetkit/uetkit/uet/msg" // connections
)

// infoEntry is one provider, address and endpoint type, as JSON.
type infoEntry struct {
	Provider  string         `json:"provider"`
	Version   string         `json:"version"`
	Fabric    string         `json:"fabric"`
	Domain    string         `json:"domain"`
	Type      string         `json:"type"`
	Address   string         `json:"address"`
	Format    string         `json:"addr_format"`
	Caps      string         `json:"caps"`
	MaxMsg    uint64         `json:"max_msg_size"`
	Inject    int            `json:"inject_size"`
	TxSize    int            `json:"tx_size"`
	RxSize    int            `json:"rx_size"`
	Iov       int            `json:"iov_limit"`
	CQData    int            `json:"cq_data_size"`
	Threading string         `json:"threading"`
	Progress  string         `json:"data_progress"`
	MTU       int            `json:"mtu"`
	Payload   int            `json:"payload_mtu"`
	Method    string         `json:"method"`
	GSO       record.Feature `json:"gso"`
	GRO       record.Feature `json:"gro"`
	ECN       record.Feature `json:"ecn"`
	Evidence  record.Feature `json:"icmp_evidence"`
	DF        record.Feature `json:"dont_fragment"`
	Rcvbuf    int            `json:"rcvbuf"`
	RcvAsked  int            `json:"rcvbuf_asked"`
	Sndbuf    int            `json:"sndbuf"`
	SndAsked  int            `json:"sndbuf_asked"`
	CRC       bool           `json:"crc"`
	Sec       string         `json:"sec"`
	Error     string         `json:"error,omitempty"` // why no endpoint could be opened

	rcvShort, sndShort bool // the system gave less than was asked for
}

// infoRecord is the JSON output of info.
type infoRecord struct {
	Schema string      `json:"schema"`
	Tool   record.Tool `json:"tool"`
	Host   record.Host `json:"host"`
	// Types are the endpoint types that each entry offers, Security the ways to secure them.
	Types    []string       `json:"ep_types"`
	Security []infoSecurity `json:"security"`
	Infos    []infoEntry    `json:"infos"`
	Refused  []infoRefused  `json:"refused,omitempty"`
	// Interfaces tells why interfaces cannot be used, and why usable ones are slower than they
	// could be.
	Interfaces []uet.Reason `json:"interfaces,omitempty"`
}

// infoSecurity is one way to secure endpoints.
type infoSecurity struct {
	Sec   string   `json:"sec"`
	Types []string `json:"ep_types"`
	What  string   `json:"what"`
}

var security = []infoSecurity{
	{traffic.PSK, []string{"FI_EP_RDM", "FI_EP_MSG"}, "a cluster key: packets are sealed (TSS, AES-GCM) by whoever has the key"},
	{traffic.TLS, []string{"FI_EP_MSG"}, "certificates: each connection is between two members by name, and has keys of its own"},
}

// An infoRefused is something that a libfabric program may ask for and does not get, with
// the reasons.
type infoRefused struct {
	What    string       `json:"what"`
	Why     string       `json:"why"`
	Mend    string       `json:"mend"`
	Reasons []uet.Reason `json:"reasons"`
}

// askable are things that a libfabric program may ask for. info asks for each of them and
// lists those that are refused.
var askable = []struct {
	what string
	hint func(*uet.Info)
}{
	{"FI_RMA", func(h *uet.Info) { h.Caps = fi.RMA }},
	{"FI_COMMIT_COMPLETE", func(h *uet.Info) { h.Tx.OpFlags = fi.CommitComplete }},
	{"FI_MULTICAST", func(h *uet.Info) { h.Caps = fi.Msg | fi.Multicast }},
	{"FI_COLLECTIVE", func(h *uet.Info) { h.Caps = fi.Collective }},
	{"FI_HMEM", func(h *uet.Info) { h.Caps = fi.HMEM }},
	{"FI_NAMED_RX_CTX", func(h *uet.Info) { h.Caps = fi.NamedRxCtx }},
	{"FI_SHARED_AV", func(h *uet.Info) { h.Caps = fi.SharedAV }},
	{"FI_TRIGGER", func(h *uet.Info) { h.Caps = fi.Trigger }},
}

// refusedHints returns the entries of askable that are refused on every interface.
func refusedHints() []infoRefused {
	var out []infoRefused
	for _, a := range askable {
		h := &uet.Info{}
		a.hint(h)
		var all []uet.Reason
		for _, r := range uet.Explain(h) {
			if r.Interface == "" {
				all = append(all, r)
			}
		}
		if all != nil {
			out = append(out, infoRefused{a.what, all[0].Why, all[0].Mend, all})
		}
	}
	return out
}

// slower tells what makes an address slower than it could be.
func (e *infoEntry) slower() []uet.Reason {
	var out []uet.Reason
	add := func(field, have, why, mend string) {
		out = append(out, uet.Reason{Interface: e.Domain, Field: field, Have: have, Why: why, Mend: mend})
	}
	if e.Error != "" {
		add("Address", e.Address, e.Error, "look who has the port, and what limits there are (ulimit -n)")
		return out
	}
	if !e.GSO.On {
		add("GSO", "off", "each datagram costs a system call: "+e.GSO.Why, "Linux 4.18 or later, and a device that lets it be on (ethtool -K "+e.Domain+" tx-udp-segmentation on)")
	}
	if !e.GRO.On {
		add("GRO", "off", "each datagram is received by itself: "+e.GRO.Why, "Linux 5.0 or later; on other systems there is none")
	}
	if !e.ECN.On {
		add("ECN", "off", "congestion is noticed by loss and delay only: "+e.ECN.Why, "a system that tells the traffic class of datagrams")
	}
	if !e.Evidence.On {
		add("ICMP", "off", "a closed port is noticed by silence only: "+e.Evidence.Why, "a system that tells errors of datagrams (IP_RECVERR)")
	}
	if !e.DF.On {
		add("DF", "off", "packets may be fragmented, and a lost fragment loses all: "+e.DF.Why, "a system that can forbid it (IP_MTU_DISCOVER)")
	}
	if next := 2 * e.Payload; e.Payload < 8192 {
		add("MTU", fmt.Sprint(e.MTU), fmt.Sprintf("packets carry %d bytes of a message, and cost as much as longer ones", e.Payload),
			fmt.Sprintf("an MTU of %d or more on the whole path makes it %d (ip link set %s mtu …)", next+200, next, e.Domain))
	}
	if e.rcvShort {
		add("Rcvbuf", units.Bytes(int64(e.Rcvbuf)), "bursts that find the receive buffer full are lost", fmt.Sprintf("sysctl -w net.core.rmem_max=%d", e.RcvAsked))
	}
	if e.sndShort {
		add("Sndbuf", units.Bytes(int64(e.Sndbuf)), "a full send buffer holds packets up", fmt.Sprintf("sysctl -w net.core.wmem_max=%d", e.SndAsked))
	}
	if ip, err := netip.ParseAddr(e.Address); err == nil && ip.IsLoopback() {
		add("Loopback", "", "what leaves the loopback interface stays on this host", "name an address of another interface to talk to other hosts")
	}
	return out
}

const unsecured = `Endpoints are not secured unless they are told to be: then they take messages
from any source that can reach their UDP port, also from one that is not in the
address vector, and a single forged datagram can deliver a message. KnownPeersOnly
(uet.Config) refuses addresses that are not in the vector; it does not stop one who
forges them. Use unsecured endpoints on networks you trust.`

// runInfo runs the info command.
func runInfo(cfg *Config, stdout, _ io.Writer) error {
	out, err := openOutput("-J", cfg.JSON, stdout)
	if err != nil {
		return err
	}
	hints := &uet.Info{AddrFormat: fi.FormatSockaddr}
	hints.Domain.Name = cfg.Domain
	switch cfg.Spec.EP {
	case traffic.MSG:
		hints.Ep.Type = fi.EpMsg
	case traffic.Dgram:
		hints.Ep.Type = fi.EpDgram
	}
	infos, err := perf.Infos(hints)
	if err != nil {
		return err
	}
	r := infoRecord{Schema: "uetperf-info/1", Tool: perf.ThisTool(), Host: perf.ThisHost(), Types: epTypes(), Security: security}
	if cfg.Explain {
		r.Refused = refusedHints()
		for _, x := range uet.Explain(hints) {
			if x.Field != "Domain.Name" { // interfaces that -d excluded
				r.Interfaces = append(r.Interfaces, x)
			}
		}
	}
	for _, in := range infos {
		e := describe(in)
		r.Infos = append(r.Infos, e)
		if cfg.Explain {
			for _, s := range e.slower() {
				if !slices.Contains(r.Interfaces, s) { // an interface may have several addresses
					r.Interfaces = append(r.Interfaces, s)
				}
			}
		}
	}
	if cfg.JSON != "-" {
		printInfo(stdout, &r, cfg.Verbose)
	}
	if cfg.JSON == "" {
		return nil
	}
	enc := json.NewEncoder(out.w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return named("-J", cfg.JSON, cmp.Or(enc.Encode(r), out.close()))
}

// epTypes returns the endpoint types that GetInfo grants.
func epTypes() []string {
	var out []string
	for _, t := range []fi.EpType{fi.EpRDM, fi.EpMsg, fi.EpDgram} {
		h := &uet.Info{}
		h.Ep.Type = t
		if _, err := uet.GetInfo("", "", 0, h); err == nil {
			out = append(out, typeName(t))
		}
	}
	return out
}

func typeName(t fi.EpType) string {
	return "FI_EP_" + strings.TrimPrefix(strings.ToUpper(t.String()), "FI_EP_")
}

// describe opens an endpoint to find out what the system gives.
func describe(in *uet.Info) infoEntry {
	e := infoEntry{
		Provider: in.Fabric.ProvName, Version: in.Fabric.ProvVersion, Fabric: in.Fabric.Name, Domain: in.Domain.Name, Type: typeName(in.Ep.Type),
		Address: in.SrcAddr.IP.String(), Format: in.AddrFormat.String(), Caps: in.Caps.String(), MaxMsg: in.Ep.MaxMsgSize, Inject: in.Tx.InjectSize,
		TxSize: in.Tx.Size, RxSize: in.Rx.Size, Iov: in.Tx.IovLimit, CQData: in.Domain.CQDataSize, Threading: in.Domain.Threading.String(),
		Progress: in.Domain.DataProgress.String(), Payload: in.Config.PayloadMTU, Sec: "off",
	}
	p, err := perf.Probe(in)
	if err != nil {
		e.Error = err.Error()
		return e
	}
	s := p.Socket
	e.MTU, e.Payload, e.Method, e.CRC = s.MTU, p.PayloadMTU, s.Method, p.CRC
	e.GSO, e.GRO = record.Feature{On: s.GSO.On, Why: s.GSO.Why}, record.Feature{On: s.GRO.On, Why: s.GRO.Why}
	e.ECN, e.Evidence = record.Feature{On: s.ECN.On, Why: s.ECN.Why}, record.Feature{On: s.Evidence.On, Why: s.Evidence.Why}
	e.DF = record.Feature{On: s.DontFragment.On, Why: s.DontFragment.Why}
	e.Rcvbuf, e.RcvAsked, e.Sndbuf, e.SndAsked = s.RecvBuf.Got, s.RecvBuf.Asked, s.SendBuf.Got, s.SendBuf.Asked
	e.rcvShort, e.sndShort = s.RecvBuf.Short, s.SendBuf.Short
	return e
}

// printInfo prints what all entries share once, and a table of the rest.
func printInfo(w io.Writer, r *infoRecord, verbose bool) {
	if verbose {
		for i := range r.Infos {
			printEntry(w, &r.Infos[i])
		}
	} else {
		printTable(w, r)
	}
	fmt.Fprintf(w, "\nendpoint types: %s; each address has all\n", strings.Join(r.Types, ", "))
	for _, s := range r.Security {
		fmt.Fprintf(w, "security %s: %s (%s)\n", s.Sec, s.What, strings.Join(s.Types, ", "))
	}
	fmt.Fprintf(w, "\n%s\n", unsecured)
	for _, e := range r.Infos {
		if e.rcvShort || e.sndShort {
			fmt.Fprintf(w, "\nSocket buffers are smaller than asked for (%s); raise the limit with\n    sysctl -w net.core.rmem_max=%d net.core.wmem_max=%d\n",
				units.Bytes(int64(e.RcvAsked)), e.RcvAsked, e.SndAsked)
			break
		}
	}
	printReasons(w, r)
}

// printReasons prints for each reason what is missing, why, and what to do.
func printReasons(w io.Writer, r *infoRecord) {
	head := "\nInterfaces:\n"
	for _, x := range r.Interfaces {
		what := x.Interface + " " + x.Field
		if x.Field == "Domain" {
			what = x.Interface
		}
		if x.Have != "" {
			what += " " + x.Have
		}
		fmt.Fprintf(w, "%s    %-20s %s\n    %-20s → %s\n", head, what, x.Why, "", x.Mend)
		head = ""
	}
	head = "\nNot offered:\n"
	for _, n := range r.Refused {
		fmt.Fprintf(w, "%s    %-20s %s\n    %-20s → %s\n", head, n.What, n.Why, "", n.Mend)
		head = ""
	}
}

// printTable prints a table with one line per entry, and below it why features are off.
func printTable(w io.Writer, r *infoRecord) {
	if len(r.Infos) == 0 {
		return
	}
	e := &r.Infos[0]
	fmt.Fprintf(w, "provider: %s %s, fabric %s, %s, security %s\n", e.Provider, e.Version, e.Fabric, e.Type, e.Sec)
	fmt.Fprintf(w, "caps:     %s\n", e.Caps)
	fmt.Fprintf(w, "limits:   %s\n", e.limits())
	fmt.Fprintf(w, "threads:  %s, data progress %s\n", e.Threading, e.Progress)
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"domain", "address", "MTU", "payload", "inject", "GSO", "GRO", "ECN", "CRC", "buffers rx/tx"})
	notes := map[string]bool{}
	var order []string
	note := func(name string, f record.Feature) string {
		if f.Why != "" {
			s := name + ": " + f.Why
			if !notes[s] {
				notes[s] = true
				order = append(order, s)
			}
		}
		return onOff(f.On)
	}
	for i := range r.Infos {
		e := &r.Infos[i]
		if e.Error != "" {
			t.AppendRow(table.Row{e.Domain, e.Address, "-", e.Payload, e.Inject, "-", "-", "-", "-", "-"})
			order = append(order, e.Address+" cannot be used: "+e.Error)
			continue
		}
		t.AppendRow(table.Row{
			e.Domain, e.Address, e.MTU, e.Payload, e.Inject, note("GSO", e.GSO), note("GRO", e.GRO), note("ECN", e.ECN), onOff(e.CRC),
			units.Bytes(int64(e.Rcvbuf)) + " / " + units.Bytes(int64(e.Sndbuf)),
		})
		note("ICMP evidence", e.Evidence)
		note("DF", e.DF)
	}
	fmt.Fprintln(w, t.Render())
	for _, s := range order {
		fmt.Fprintln(w, s)
	}
}

func (e *infoEntry) limits() string {
	return fmt.Sprintf("message %d B, inject one payload, %d sends, %d receives, iov %d, remote CQ data %d B", e.MaxMsg, e.TxSize, e.RxSize, e.Iov, e.CQData)
}

// printEntry prints one entry in the format of fi_info.
func printEntry(w io.Writer, e *infoEntry) {
	fmt.Fprintf(w, "provider: %s\n", e.Provider)
	line := func(key, format string, args ...any) {
		fmt.Fprintf(w, "    %-14s %s\n", key+":", fmt.Sprintf(format, args...))
	}
	line("fabric", "%s", e.Fabric)
	line("domain", "%s", e.Domain)
	line("version", "%s", e.Version)
	line("type", "%s", e.Type)
	line("address", "%s (%s)", e.Address, e.Format)
	line("caps", "%s", e.Caps)
	line("limits", "%s", e.limits())
	line("threading", "%s, data progress %s", e.Threading, e.Progress)
	if e.Error != "" {
		line("socket", "cannot be opened: %s", e.Error)
		return
	}
	line("packets", "MTU %d, payload %d B, inject %d B, CRC-32C %s", e.MTU, e.Payload, e.Inject, onOff(e.CRC))
	line("system calls", "%s", e.Method)
	line("offloads", "%s, %s, %s, %s, %s", feature("GSO", e.GSO), feature("GRO", e.GRO), feature("ECN", e.ECN), feature("ICMP evidence", e.Evidence), feature("DF", e.DF))
	line("buffers", "%s, %s", buffer("receive", e.Rcvbuf, e.RcvAsked), buffer("send", e.Sndbuf, e.SndAsked))
	line("security", "%s", e.Sec)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
