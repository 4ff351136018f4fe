package record

import (
	"maps"
	"slices"
	"testing"
)

// words are sentences on keys whose fields have no comment, because a name says to who reads the source
// what it says to nobody else. The page and the schema have them.
var words = map[string]string{
	"Record.schema": "The name of the schema that the record meets", "Record.tool": "The program that wrote it", "Record.command": "The command line, word by word",
	"Record.seed": "The seed of all that was drawn: the same one repeats it", "Record.host": "The host that ran the command", "Record.peer": "The host of the server",
	"Record.config": "What was asked for, with the defaults filled in", "Record.path": "The way to the server", "Record.runs": "What was measured: one for each size, direction or repetition",
	"Record.verdict": "How each assertion (`--assert`) ended",
	"Tool.version":   "The version of uetperf", "Tool.commit": "The commit that it was built from", "Tool.go": "The version of Go that built it",
	"Host.name": "The name of the host", "Host.os": "Its operating system and processor architecture", "Host.kernel": "The release of its kernel",
	"Config.test": "The command: lat, bw, rate, …", "Config.op": "The operation: send, tsend, write, …", "Config.ep": "The type of the endpoints: rdm or msg",
	"Config.mode": "The delivery mode: rud, rod, rudi or uud", "Config.complete": "When an operation counts as done: inject, transmit, delivery, match or commit",
	"Config.cc": "The congestion control", "Config.sec": "The security: off, psk or tls", "Config.crc": "Whether packets in clear have a CRC",
	"Config.paths": "The paths that the packets of an endpoint take", "Config.parallel": "The streams at once", "Config.progress": "Who makes progress: auto (a goroutine) or manual",
	"Path.local": "The address of this end", "Path.remote": "The address of the other end", "Path.interface": "The interface that leads there",
	"Path.gso": "Whether the kernel cuts what is sent into packets", "Path.gro": "Whether the kernel joins packets that arrive", "Path.ecn": "Whether marks of congestion are seen",
	"Feature.on": "Whether it is in use", "World.ranks": "The number of ranks", "RanksOn.name": "The name of the host", "RanksOn.ranks": "The ranks on it",
	"Run.size": "The size of a message in bytes", "Run.msgs": "The messages that were measured", "Run.bytes": "The bytes of these messages",
	"Run.latency_ns": "The latencies of the messages", "Run.msgs_per_s": "Messages per second", "Run.cpu": "The processor time of the measurement", "Run.data_check": "What the check of the data (`-c`) found",
	"Latency.min": "The least", "Latency.p50": "The median", "Latency.p90": "The 90th percentile", "Latency.p99": "The 99th percentile", "Latency.p999": "The 99.9th percentile",
	"Latency.max": "The largest", "Latency.mean": "The mean", "Latency.stddev": "The standard deviation", "Latency.rtt": "Whether these are whole round trips, not halves",
	"Latency.completion":  "Whether these are from the call of an operation to its completion",
	"Slowest.goodput_bps": "Bits of messages per second in the interval", "Slowest.duration_ns": "How long the interval was",
	"Stream.spurious": "Packets of the stream that were sent again for nothing",
	"Stream.msgs":     "The messages of the stream", "Stream.bytes": "The bytes of these messages", "Stream.duration_ns": "How long the stream took", "Stream.goodput_bps": "Bits of messages per second",
	"Stream.ecn": "Packets of the stream marked \"congestion experienced\"", "Stream.trimmed": "Packets of the stream that a switch cut",
	"Counters.tx_pkts": "Packets sent", "Counters.rx_pkts": "Packets received", "Counters.rx_bytes": "Bytes of the packets received",
	"Counters.rtx_rto": "Packets sent again after a timeout", "Counters.rtx_sack": "Packets sent again because acknowledgements left them out", "Counters.rtx_nack": "Packets sent again because the other end asked for them",
	"Counters.dup": "Packets that came once more", "Counters.ooo": "Packets that came out of order", "Counters.ecn_ce": "Packets that came marked \"congestion experienced\"",
	"Counters.acks_tx": "Acknowledgements sent", "Counters.acks_rx": "Acknowledgements received",
	"CPU.user_ns": "Processor time of this process in the program", "CPU.sys_ns": "Processor time of this process in the kernel", "CPU.peer_sys_ns": "Processor time of the server in the kernel",
	"Check.ok": "Messages whose data was right", "Check.wrong": "Messages whose data was wrong", "Load.offered_per_s": "The rate at which requests were meant to begin",
	"Churn.open_ns": "How long it took to open a context or connection", "Churn.close_ns": "How long it took to close one",
	"Leak.samples": "The samples that were judged", "Leak.leaks": "Whether it is called a leak", "Round.duration_ns": "How long the test took",
	"Mesh.hosts": "The hosts, in the order of the command line", "MeshHost.addr": "Its address", "MeshHost.host": "What the host is",
	"MeshPair.from": "The sender, an index of `hosts`", "MeshPair.to": "The receiver, an index of `hosts`", "MeshPair.goodput_bps": "Bits of messages per second",
	"MeshPair.rtx": "Packets sent again", "MeshPair.error": "Why the pair failed",
	"Sample.bytes": "The bytes of the messages of the interval", "Sample.msgs": "The messages of the interval", "Sample.trimmed": "Packets that a switch cut",
	"Verdict.assert": "The assertion, as it was given", "Verdict.pass": "Whether it holds",
}

// fill gives keys without a comment their sentence.
func fill(all []object) {
	for i := range all {
		for j := range all[i].keys {
			if k := &all[i].keys[j]; k.about == "" {
				k.about = words[all[i].name+"."+k.name]
			}
		}
	}
}

// Every key of the record has a sentence, and there is none for a key that is not.
func TestKeysHaveSentences(t *testing.T) {
	d := newDescriber(t)
	d.visit(recordType)
	left := maps.Clone(words)
	for _, o := range d.out {
		for _, k := range o.keys {
			name := o.name + "." + k.name
			if k.about == "" && words[name] == "" {
				t.Errorf("%s: say what it is, by a comment of the field or in words", name)
			}
			if k.about == "" {
				delete(left, name)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("words of no key, or of one whose field has a comment: %v", slices.Sorted(maps.Keys(left)))
	}
}
