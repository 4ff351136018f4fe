package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A jsonPacket is the line of -J for a packet. Fields that do not apply are left out.
type jsonPacket struct {
	Time    string   `json:"time"`
	Rel     float64  `json:"rel"`
	Frame   int      `json:"frame"`
	Part    int      `json:"part,omitempty"` // of a train, from 1
	Parts   int      `json:"parts,omitempty"`
	Source  string   `json:"src"`
	Dest    string   `json:"dst"`
	Native  bool     `json:"native,omitempty"`
	EV      uint16   `json:"ev"`
	TOS     uint8    `json:"tos"`
	Len     int      `json:"len"`
	Cap     int      `json:"captured"`
	Trailer string   `json:"trailer"`
	Type    string   `json:"type,omitempty"`
	Flags   *uint8   `json:"flags,omitempty"`
	PSN     *uint32  `json:"psn,omitempty"`
	SPDCID  uint16   `json:"spdcid,omitempty"`
	DPDCID  uint16   `json:"dpdcid,omitempty"`
	CACK    *uint32  `json:"cack,omitempty"`
	AckPSN  *uint32  `json:"ack_psn,omitempty"`
	Nack    string   `json:"nack,omitempty"`
	Ctl     string   `json:"ctl,omitempty"`
	Opcode  string   `json:"opcode,omitempty"`
	MsgID   *uint16  `json:"msg_id,omitempty"`
	Data    int      `json:"data,omitempty"`
	Sealed  *jsonTSS `json:"sealed,omitempty"`
	PDC     int      `json:"pdc,omitempty"`
	From    string   `json:"from,omitempty"` // initiator or target
	RelPSN  *int32   `json:"rel_psn,omitempty"`
	Sent    int      `json:"sent,omitempty"` // how often the PSN was sent, this time included
	Text    string   `json:"text"`
	Comment []string `json:"comment,omitempty"`
}

type jsonTSS struct {
	SDI    uint32 `json:"sdi"`
	SSI    uint32 `json:"ssi"`
	AN     uint8  `json:"an"`
	Epoch  uint16 `json:"epoch"`
	TSC    uint64 `json:"tsc"`
	Opened bool   `json:"opened"`
}

func (p *printer) encode(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		if p.err == nil {
			p.err = err
		}
		return
	}
	p.printf("%s\n", b)
}

func (p *printer) json(k *packet, n *note) {
	j := &jsonPacket{
		Time: k.at.UTC().Format(time.RFC3339Nano), Rel: k.at.Sub(p.first).Seconds(), Frame: k.frame, Source: address(k.src), Dest: address(k.dst),
		Native: k.native, EV: k.ev, TOS: k.tos, Len: k.len, Cap: len(k.raw), Trailer: k.tail.String(), Text: k.text(), Data: k.data(), Comment: k.comments,
	}
	if k.parts > 1 {
		j.Part, j.Parts = k.part, k.parts
	}
	if k.tss != nil {
		j.Sealed = &jsonTSS{k.tss.SDI, k.tss.SSI, k.tss.AN, k.tss.Epoch, k.tss.TSC, k.plain != nil}
	}
	if m := k.msg; m != nil {
		j.fill(m)
	}
	if n.pdc != nil {
		j.PDC, j.From, j.Sent = n.pdc.n, [2]string{"initiator", "target"}[n.from], n.times
		if n.hasRel {
			j.RelPSN = &n.rel
		}
	}
	p.encode(j)
}

// fill copies the fields of the headers.
func (j *jsonPacket) fill(m *message) {
	psn := func(p wire.PSN) *uint32 { v := uint32(p); return &v }
	flags := func(f wire.Flags) *uint8 { v := uint8(f); return &v }
	if m.typ != 0 {
		j.Type = m.typ.String()
	}
	j.SPDCID, j.DPDCID = m.ids()
	switch {
	case m.req != nil:
		j.Flags, j.PSN = flags(m.req.Flags), psn(m.req.PSN)
	case m.ack != nil:
		j.Flags, j.CACK = flags(m.ack.Flags), psn(m.ack.CACK)
		if m.ack.Flags&wire.AckFlagP == 0 {
			j.AckPSN = psn(m.ack.AckPSN())
		}
	case m.nack != nil:
		j.Flags, j.PSN, j.Nack = flags(m.nack.Flags), psn(m.nack.PSN), m.nack.Code.String()
	case m.cp != nil:
		j.Flags, j.PSN, j.Ctl = flags(m.cp.Flags), psn(m.cp.PSN), m.cp.Ctl.String()
	}
	switch {
	case m.small != nil:
		j.Opcode = m.small.Opcode.String()
	case m.medium != nil:
		j.Opcode = m.medium.Opcode.String()
	case m.std != nil:
		j.Opcode = m.std.Opcode.String()
	case m.rsp != nil:
		j.Opcode = m.rsp.Opcode.String()
	case m.rdata != nil:
		j.Opcode = m.rdata.Opcode.String()
	case m.rsmall != nil:
		j.Opcode = m.rsmall.Opcode.String()
	}
	if id, ok := m.msgID(); ok {
		j.MsgID = &id
	}
}

// A jsonPDC is the line of -J for a row of the summary.
type jsonPDC struct {
	PDC       int         `json:"pdc"`
	Mode      string      `json:"mode,omitempty"`
	Initiator string      `json:"initiator"`
	Target    string      `json:"target"`
	Start     *uint32     `json:"start_psn,omitempty"`
	Sent      [2]jsonSide `json:"sent"` // by the initiator, by the target
	From      float64     `json:"from"`
	For       float64     `json:"for"`
	End       string      `json:"end"`
}

type jsonSide struct {
	Packets    uint64  `json:"packets"`
	Resent     uint64  `json:"resent"`
	Bytes      uint64  `json:"bytes"`
	Acks       uint64  `json:"acks"` // that came back
	Nacks      uint64  `json:"nacks"`
	Unanswered int     `json:"unanswered"`
	RTTMin     float64 `json:"rtt_min,omitempty"` // seconds
	RTT        float64 `json:"rtt,omitempty"`
}

func (p *printer) jsonTable(pdcs []*pdc) {
	for _, c := range pdcs {
		j := &jsonPDC{
			PDC: c.n, Initiator: c.ends[0].String(), Target: c.ends[1].String(), From: c.began.Sub(p.first).Seconds(), For: c.last.Sub(c.began).Seconds(),
			End: c.endText(),
		}
		if c.mode != 0 {
			j.Mode = c.mode.String()
		}
		if c.syn {
			v := uint32(c.dir[0].base)
			j.Start = &v
		}
		for i := range c.dir {
			d := &c.dir[i]
			j.Sent[i] = jsonSide{d.packets, d.resends, d.bytes, d.acks, d.nacks, d.open, d.rttMin.Seconds(), d.rtt.Seconds()}
		}
		p.encode(map[string]any{"summary": j})
	}
}

func (p *printer) jsonStalls(stalls []stall) {
	for _, s := range stalls {
		p.encode(map[string]any{"stall": map[string]any{
			"pdc": s.pdc.n, "end": fmt.Sprint(s.pdc.ends[s.dir]), "what": s.what, "why": s.why,
		}})
	}
}
