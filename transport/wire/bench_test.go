package wire

import "testing"

// The headers of the packets of a transfer: a request and its standard header one way, an
// ACK_CC and its response the other. The test of each codec checks that none allocates.
var (
	hotReq = Req{Type: TypeRUDReq, Next: NextReqStd, Flags: FlagAR, ClearOff: -1, PSN: 0x30ece246, SPDCID: 1, DPDCID: 2}
	hotStd = ReqStd{
		Opcode: OpTaggedSend, Flags: SESREL | SESHD | SESSOM, MsgID: 2, JobID: 1, RI: DefaultRI, Initiator: DefaultInitiator,
		Match: 0x1122334455667788, HeaderData: 1, ReqLen: 2500,
	}
	hotAck = Ack{Type: TypeAckCC, Next: NextRsp, AckPSNOff: 3, CACK: 0x30ece246, SPDCID: 2, DPDCID: 1, MPR: 8, SACK: 0xd, CCState: 0x1234_0000_0100_0002}
	hotRsp = Rsp{RC: RCOK, MsgID: 2, JobID: 1, ModLen: 2500}
)

// sink keeps results alive.
var sink int

func benchParse[H any](b *testing.B, buf []byte, parse func([]byte) (H, int, error)) {
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		_, n, err := parse(buf)
		if err != nil {
			b.Fatal(err)
		}
		sink = n
	}
}

func benchAppend(b *testing.B, put func([]byte) []byte) {
	buf := put(make([]byte, 0, 128))
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		buf = put(buf[:0])
	}
	sink = len(buf)
}

func BenchmarkParse(b *testing.B) {
	b.Run("Prologue", func(b *testing.B) {
		benchParse(b, hotReq.Append(nil)[:PrologueLen], func(p []byte) (Prologue, int, error) {
			h, err := ParsePrologue(p)
			return h, PrologueLen, err
		})
	})
	b.Run("Req", func(b *testing.B) { benchParse(b, hotReq.Append(nil), ParseReq) })
	b.Run("ReqStd", func(b *testing.B) { benchParse(b, hotStd.Append(nil), ParseReqStd) })
	b.Run("Ack", func(b *testing.B) { benchParse(b, hotAck.Append(nil), ParseAck) })
	b.Run("Rsp", func(b *testing.B) { benchParse(b, hotRsp.Append(nil), ParseRsp) })
	b.Run("TSS", func(b *testing.B) { benchParse(b, TSS{SP: true, SDI: 1, SSI: 2, TSC: 3}.Append(nil), ParseTSS) })
}

func BenchmarkAppend(b *testing.B) {
	b.Run("Req", func(b *testing.B) { benchAppend(b, hotReq.Append) })
	b.Run("ReqStd", func(b *testing.B) { benchAppend(b, hotStd.Append) })
	b.Run("Ack", func(b *testing.B) { benchAppend(b, hotAck.Append) })
	b.Run("Rsp", func(b *testing.B) { benchAppend(b, hotRsp.Append) })
	b.Run("TSS", func(b *testing.B) { benchAppend(b, TSS{SP: true, SDI: 1, SSI: 2, TSC: 3}.Append) })
}

func BenchmarkDump(b *testing.B) {
	buf := append(hotStd.Append(hotReq.Append(nil)), make([]byte, 1024)...)
	b.ReportAllocs()
	for b.Loop() {
		sink = len(Dump(buf))
	}
}
