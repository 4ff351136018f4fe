package wire

import (
	"bytes"
	"testing"
)

// ackCodec tests ACK, ACK_CC and ACK_CCX: UE 3.5.10.5 to 3.5.10.7.
var ackCodec = codec[Ack]{
	parse: ParseAck,
	put:   (*Ack).Append,
	text:  (*Ack).String,
	vectors: []vector[Ack]{
		{
			name: "ACK", // refprov-read-small-ackdata 2
			bytes: `
				3a82/0001 # type 7 ACK, next_hdr 5 RSP_DATA, flags REQ=1 CLEAR
				0001      # ack_psn_offset +1
				5819817c  # cack_psn
				0001      # spdcid
				0001      # dpdcid`,
			want: Ack{Type: TypeAck, Next: NextRspData, Req: ReqClear, AckPSNOff: 1, CACK: 0x5819817c, SPDCID: 1, DPDCID: 1},
			text: "ACK - req=1 nh=RSP_DATA ack_off=1 cack=0x5819817c spdcid=1 dpdcid=1",
		},
		{
			name: "ACK of a CLOSE",
			bytes: `
				3800/0001 # type 7 ACK, next_hdr 0 NONE
				0001      # ack_psn_offset +1
				00012345  # cack_psn
				0009      # spdcid
				0005      # dpdcid`,
			want: Ack{Type: TypeAck, AckPSNOff: 1, CACK: 0x12345, SPDCID: 9, DPDCID: 5},
			text: "ACK - req=0 nh=NONE ack_off=1 cack=0x12345 spdcid=9 dpdcid=5",
		},
		{
			name: "ACK with Expected_PSN", // refprov-tss-direct-v4 6, decrypted
			bytes: `
				3840/0001 # type 7 ACK, next_hdr 0 NONE, flags EPSN
				0001      # ack_psn_offset +1
				6a883eae  # cack_psn
				0001      # spdcid
				0001      # dpdcid
				6a883eaf  # Expected_PSN`,
			want: Ack{Type: TypeAck, Flags: AckFlagEPSN, AckPSNOff: 1, CACK: 0x6a883eae, SPDCID: 1, DPDCID: 1, EPSN: 0x6a883eaf},
			text: "ACK EPSN req=0 nh=NONE ack_off=1 cack=0x6a883eae spdcid=1 dpdcid=1 expected_psn=0x6a883eaf",
		},
		{
			name: "answer to a PROBE", // xdp2-test_uet 13
			bytes: `
				3a3c/0001 # type 7 ACK, next_hdr 4 RSP, flags M+RETX+P, REQ=2 CLOSE
				6543      # probe_opaque
				87654321  # cack_psn
				1234      # spdcid
				8875      # dpdcid`,
			want: Ack{
				Type: TypeAck, Next: NextRsp, Flags: AckFlagM | AckFlagRETX | AckFlagP, Req: ReqClose, ProbeOpaque: 0x6543, CACK: 0x87654321,
				SPDCID: 0x1234, DPDCID: 0x8875,
			},
			text: "ACK M+RETX+P req=2 nh=RSP probe_opaque=0x6543 cack=0x87654321 spdcid=4660 dpdcid=34933",
		},
		{
			name: "ACK_CC", // refprov-write-loss-ackcc 16
			bytes: `
				4200/0041 # type 8 ACK_CC, next_hdr 4 RSP
				fffc      # ack_psn_offset −4
				42f25614  # cack_psn
				0001      # spdcid
				0001      # dpdcid
				00        # cc_type 0 NSCC, cc_flags 0
				01        # mpr 1: 128 PSNs
				0000      # sack_psn_offset 0
				0000000000000005 # sack_bitmap: base and base+2
				0000000000000000 # ack_cc_state`,
			want: Ack{Type: TypeAckCC, Next: NextRsp, AckPSNOff: -4, CACK: 0x42f25614, SPDCID: 1, DPDCID: 1, MPR: 1, SACK: 5},
			text: "ACK_CC - req=0 nh=RSP ack_off=-4 cack=0x42f25614 spdcid=1 dpdcid=1 cc_type=0 cc_flags=0x0 mpr=1 sack_off=0 sack=0x5 cc_state=0x0",
		},
		{
			name: "ACK_CC with credit", // xdp2-uet_pds 11
			bytes: `
				4232/0041 # type 8 ACK_CC, next_hdr 4 RSP, flags M+RETX, REQ=1 CLEAR
				9876      # ack_psn_offset −26506
				2468ace0  # cack_psn
				3456      # spdcid
				789a      # dpdcid
				1f        # cc_type 1 CREDIT, cc_flags 0xf
				87        # mpr
				9988      # sack_psn_offset −26232
				123456789abcdef0 # sack_bitmap
				1234560000008765 # ack_cc_state: credit 0x123456, ooo_count 0x8765`,
			want: Ack{
				Type: TypeAckCC, Next: NextRsp, Flags: AckFlagM | AckFlagRETX, Req: ReqClear, AckPSNOff: -26506, CACK: 0x2468ace0, SPDCID: 0x3456,
				DPDCID: 0x789a, CCType: 1, CCFlags: 15, MPR: 0x87, SACKOff: -26232, SACK: 0x123456789abcdef0, CCState: 0x1234560000008765,
			},
			text: "ACK_CC M+RETX req=1 nh=RSP ack_off=-26506 cack=0x2468ace0 spdcid=13398 dpdcid=30874 " +
				"cc_type=1 cc_flags=0xf mpr=135 sack_off=-26232 sack=0x123456789abcdef0 cc_state=0x1234560000008765",
		},
		{
			name: "ACK_CCX", // refprov-write-rod-ackccx-perpkt 8, with a state of its own: layout
			bytes: `
				4800/0041 # type 9 ACK_CCX, next_hdr 0 NONE
				0001      # ack_psn_offset +1
				325df39a  # cack_psn
				0001      # spdcid
				0001      # dpdcid
				e0        # cc_type 14 vendor, cc_flags 0
				01        # mpr 1
				0001      # sack_psn_offset +1
				0000000000000000 # sack_bitmap
				1122334455667788 # ack_cc_state
				99aabbccddeeff00 # ccx state`,
			want: Ack{
				Type: TypeAckCCX, AckPSNOff: 1, CACK: 0x325df39a, SPDCID: 1, DPDCID: 1, CCType: 14, MPR: 1, SACKOff: 1,
				CCState: 0x1122334455667788, CCX: 0x99aabbccddeeff00,
			},
			text: "ACK_CCX - req=0 nh=NONE ack_off=1 cack=0x325df39a spdcid=1 dpdcid=1 " +
				"cc_type=14 cc_flags=0x0 mpr=1 sack_off=1 sack=0x0 cc_state=0x1122334455667788 ccx=0x99aabbccddeeff00",
		},
	},
	most: []Ack{
		{Type: TypeAck, Next: 15, Flags: ackFlags | AckFlagEPSN, Req: 3, ProbeOpaque: 0xffff, SPDCID: 0xffff, DPDCID: 0xffff, CACK: 0xffffffff, EPSN: 0xffffffff},
		{
			Type: TypeAckCCX, Next: 15, Flags: AckFlagM | AckFlagRETX, Req: 3, AckPSNOff: -0x8000, SPDCID: 0xffff, DPDCID: 0xffff, CACK: 0xffffffff,
			CCType: 15, CCFlags: 15, MPR: 0xff, SACKOff: -0x8000, SACK: 1<<64 - 1, CCState: 1<<64 - 1, CCX: 1<<64 - 1,
		},
	},
	refused: []refusal{
		{"request", "1180 0000 00000000 0000 0000", Invalid{"ACK", "type"}},
		{"NACK", "5000 0000 00000000 0000 0000 00000000", Invalid{"ACK", "type"}},
		{"EPSN announced, not there", "3840 0000 00000000 0000 0000 000000", Invalid{"ACK", "length"}},
		{"ACK_CCX of 32 bytes", "4800 0000 00000000 0000 0000 00000000 0000000000000000 0000000000000000", Invalid{"ACK", "length"}}, // xdp2
	},
	bugs: []bug[Ack]{
		{"type", Ack{Type: TypeNack}},
		{"next_hdr", Ack{Type: TypeAck, Next: 16}},
		{"EPSN in ACK_CC", Ack{Type: TypeAckCC, Flags: AckFlagEPSN}},
		{"REQ as a flag", Ack{Type: TypeAck, Flags: 2}},
		{"reserved flag", Ack{Type: TypeAck, Flags: 1}},
		{"req", Ack{Type: TypeAck, Req: 4}},
		{"cc_type", Ack{Type: TypeAckCC, CCType: 16}},
		{"cc_flags", Ack{Type: TypeAckCC, CCFlags: 16}},
	},
}

func TestAck(t *testing.T) { ackCodec.test(t) }
func FuzzAck(f *testing.F) { ackCodec.fuzz(f) }

// UE 3.5.11: ACK_PSN = cack_psn + ack_psn_offset, modulo 2³².
func TestAckPSN(t *testing.T) {
	for _, c := range []struct {
		cack PSN
		off  int16
		want PSN
	}{{100, 0, 100}, {100, 4, 104}, {0x42f25614, -4, 0x42f25610}, {0xffffffff, 1, 0}, {0, -1, 0xffffffff}, {0, -32768, 0xffff8000}} {
		if a := (Ack{CACK: c.cack, AckPSNOff: c.off}); a.AckPSN() != c.want {
			t.Errorf("cack %#x offset %d: %#x, want %#x", c.cack, c.off, a.AckPSN(), c.want)
		}
	}
}

// UE 3.6.9.2: each bit of ack_cc_state.
func TestNSCCState(t *testing.T) {
	for _, c := range []struct {
		v    uint64
		s    NSCCState
		text string
	}{
		{0, NSCCState{}, "service_time=0 rc=false rcv_cwnd_pend=0 rcvd_bytes=0 ooo_count=0"},
		{0x1234_8000_0000_0000, NSCCState{ServiceTime: 0x1234, RestoreCwnd: true}, "service_time=4660 rc=true rcv_cwnd_pend=0 rcvd_bytes=0 ooo_count=0"},
		{0x0000_7fab_cdef_0000, NSCCState{CwndPend: 127, RcvdBytes: 0xabcdef}, "service_time=0 rc=false rcv_cwnd_pend=127 rcvd_bytes=11259375 ooo_count=0"},
		{0xffff_0000_0001_ffff, NSCCState{ServiceTime: 0xffff, RcvdBytes: 1, OOO: 0xffff}, "service_time=65535 rc=false rcv_cwnd_pend=0 rcvd_bytes=1 ooo_count=65535"},
		// xdp2-uet_pds 10: service_time 0x99aa, rc, pend 0x7f, rcvd_bytes 0x887766, ooo 0x8765.
		{0x99aa_ff88_7766_8765, NSCCState{0x99aa, true, 0x7f, 0x887766, 0x8765}, "service_time=39338 rc=true rcv_cwnd_pend=127 rcvd_bytes=8943462 ooo_count=34661"},
	} {
		a := Ack{CCState: c.v}
		if n := a.NSCC(); n.ServiceTime() != c.s.ServiceTime || n.RestoreCwnd() != c.s.RestoreCwnd || n.CwndPend() != c.s.CwndPend || n.RcvdBytes() != c.s.RcvdBytes {
			t.Errorf("%#x: the fields one by one are %d %t %d %d", c.v, n.ServiceTime(), n.RestoreCwnd(), n.CwndPend(), n.RcvdBytes())
		}
		if a.CCType = 1; a.NSCC() != 0 {
			t.Errorf("%#x of another cc_type is taken for NSCC", c.v)
		}
		if n := NewNSCC(c.s.ServiceTime, c.s.RcvdBytes|1<<24, c.s.OOO); n != NSCC(c.v&^(0xff<<40)) {
			t.Errorf("%#x: NewNSCC gives %#x", c.v, n)
		}
		if got := ParseNSCC(c.v); got != c.s || c.s.Encode() != c.v || c.s.String() != c.text {
			t.Errorf("%#x: %v, written as %#x; want %v", c.v, got, c.s.Encode(), c.text)
		}
	}
	for i := range 64 { // all 64 bits mean something
		if v := uint64(1) << i; ParseNSCC(v).Encode() != v {
			t.Errorf("bit %d: %v is %#x", i, ParseNSCC(v), ParseNSCC(v).Encode())
		}
	}
	most := NSCCState{0xffff, true, 0x7f, 0xffffff, 0xffff}
	if got := ParseNSCC(most.Encode()); got != most {
		t.Errorf("the most that fits: %v, want %v", got, most)
	}
	for _, s := range []NSCCState{{CwndPend: 128}, {RcvdBytes: 1 << 24}} {
		wantBug(t, func() { s.Encode() })
	}
}

// UE 3.6.9.2, cc_type 1: 24 bits of credit, 24 reserved bits, 16 bits of ooo_count.
func TestCreditState(t *testing.T) {
	// xdp2-uet_pds 11, with the reserved bits set, too.
	s := CreditState{Credit: 0x123456, OOO: 0x8765}
	if got := ParseCredit(0x123456_ffffff_8765); got != s || s.Encode() != 0x123456_000000_8765 {
		t.Errorf("%v, written as %#x", got, s.Encode())
	}
	if got := s.String(); got != "credit=1193046 ooo_count=34661" {
		t.Error(got)
	}
	most := CreditState{0xffffff, 0xffff}
	if got := ParseCredit(most.Encode()); got != most {
		t.Errorf("the most that fits: %v, want %v", got, most)
	}
	wantBug(t, func() { CreditState{Credit: 1 << 24}.Encode() })
}

// A PlainAck has the fields that Parse reads, and a header is one only if it says nothing
// else: any other bit, even a reserved one, makes it none.
func TestPlainAck(t *testing.T) {
	a := Ack{Type: TypeAckCC, Next: NextRsp, CACK: 0x89abcdef, SPDCID: 0x1234, DPDCID: 0x5678, MPR: 9, SACKOff: 1, CCState: 0x1122334455667788}
	rsp := Rsp{List: 1, Opcode: RspResponse, RC: RCOK, Gen: 2, MsgID: 3, JobID: 4, ModLen: 5}
	dirty := bytes.Repeat([]byte{0xa5}, 60)
	if got, want := AppendPlain(dirty[:1], a.CACK, a.SPDCID, a.DPDCID, a.MPR, a.NSCC(), &rsp), rsp.Append(a.Append(dirty[:1:1])); !bytes.Equal(got, want) {
		t.Errorf("appended\n%x, want\n%x", got, want)
	}
	full := rsp.Append(a.Append(nil))
	for n := range full {
		if Plain(full[:n]) != nil {
			t.Errorf("%d bytes are a header and a response", n)
		}
	}
	for bit := range AckCCLen * 8 {
		b := bytes.Clone(full)
		b[bit/8] ^= 0x80 >> (bit % 8)
		i := bit / 8
		free := i >= ackCACK && i < ackCC || i == ackMPR || i >= ackSACKO && i < ackSACK || i >= ackState
		h := Plain(b)
		if (h != nil) != free {
			t.Errorf("bit %d of byte %d: plain is %t", bit%8, i, h != nil)
		}
		if h == nil {
			continue
		}
		w, _, err := ParseAck(b)
		if err != nil || h.CACK() != w.CACK || h.SPDCID() != w.SPDCID || h.DPDCID() != w.DPDCID || h.MPR() != w.MPR || h.NSCC() != w.NSCC() || !bytes.Equal(h.Rsp(), b[AckCCLen:]) {
			t.Errorf("%x: %v, read in place %#x %d %d %d %#x", b, &w, h.CACK(), h.SPDCID(), h.DPDCID(), h.MPR(), h.NSCC())
		}
	}
}
