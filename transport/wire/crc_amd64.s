#include "textflag.h"

// func crcShort(state uint32, b []byte) uint32
TEXT ·crcShort(SB), NOSPLIT, $0-36
	MOVL state+0(FP), AX
	MOVQ b_base+8(FP), SI
	MOVQ b_len+16(FP), CX
	NOTL AX

words:
	SUBQ $32, CX
	JCS  rest
	CRC32Q 0(SI), AX
	CRC32Q 8(SI), AX
	CRC32Q 16(SI), AX
	CRC32Q 24(SI), AX
	ADDQ $32, SI
	JMP  words

rest: // CX is 32 less than what is left: its low five bits are that
	BTL  $4, CX
	JCC  eight
	CRC32Q 0(SI), AX
	CRC32Q 8(SI), AX
	ADDQ $16, SI

eight:
	BTL  $3, CX
	JCC  few
	CRC32Q 0(SI), AX
	ADDQ $8, SI

few:
	ANDL $7, CX
	JEQ  done
	BTL  $2, CX
	JCC  two
	CRC32L 0(SI), AX
	ADDQ $4, SI

two:
	BTL  $1, CX
	JCC  one
	CRC32W 0(SI), AX
	ADDQ $2, SI

one:
	BTL  $0, CX
	JCC  done
	CRC32B 0(SI), AX

done:
	NOTL AX
	MOVL AX, ret+32(FP)
	RET

// func hasCRC() bool
TEXT ·hasCRC(SB), NOSPLIT, $0-1
	MOVL $1, AX
	XORL CX, CX
	CPUID
	SHRL $20, CX // SSE4.2
	ANDL $1, CX
	MOVB CX, ret+0(FP)
	RET
