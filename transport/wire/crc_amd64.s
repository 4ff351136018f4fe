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

// Constants to fold by: for a distance of T bits, the residues of x^(T+32) and x^(T-32), reflected and
// shifted left by one bit (Intel, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ").
DATA fold2048<>+0(SB)/8, $0x0dcb17aa4
DATA fold2048<>+8(SB)/8, $0x0b9e02b86
GLOBL fold2048<>(SB), RODATA|NOPTR, $16
DATA fold512<>+0(SB)/8, $0x0740eef02
DATA fold512<>+8(SB)/8, $0x09e4addf8
GLOBL fold512<>(SB), RODATA|NOPTR, $16
DATA fold128<>+0(SB)/8, $0x0f20c0dfe
DATA fold128<>+8(SB)/8, $0x14cd00bd6
GLOBL fold128<>(SB), RODATA|NOPTR, $16

// func crcLong(state uint32, b []byte) uint32
TEXT ·crcLong(SB), NOSPLIT, $0-36
	MOVL      state+0(FP), AX
	MOVQ      b_base+8(FP), SI
	MOVQ      b_len+16(FP), CX
	NOTL      AX
	VMOVDQU64 0(SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VMOVD     AX, X4
	VPXORQ    Z4, Z0, Z0
	ADDQ      $256, SI
	SUBQ      $256, CX

	VBROADCASTI32X4 fold2048<>(SB), Z8
	CMPQ            CX, $256
	JCS             join

four: // 256 bytes, each 64 into a register of their own
	VPCLMULQDQ $0x00, Z8, Z0, Z4
	VPCLMULQDQ $0x11, Z8, Z0, Z0
	VPCLMULQDQ $0x00, Z8, Z1, Z5
	VPCLMULQDQ $0x11, Z8, Z1, Z1
	VPCLMULQDQ $0x00, Z8, Z2, Z6
	VPCLMULQDQ $0x11, Z8, Z2, Z2
	VPCLMULQDQ $0x00, Z8, Z3, Z7
	VPCLMULQDQ $0x11, Z8, Z3, Z3
	VPTERNLOGQ $0x96, 0(SI), Z4, Z0
	VPTERNLOGQ $0x96, 64(SI), Z5, Z1
	VPTERNLOGQ $0x96, 128(SI), Z6, Z2
	VPTERNLOGQ $0x96, 192(SI), Z7, Z3
	ADDQ       $256, SI
	SUBQ       $256, CX
	CMPQ       CX, $256
	JCC        four

join: // the four registers into one
	VBROADCASTI32X4 fold512<>(SB), Z8
	VPCLMULQDQ      $0x00, Z8, Z0, Z4
	VPCLMULQDQ      $0x11, Z8, Z0, Z0
	VPTERNLOGQ      $0x96, Z4, Z0, Z1
	VPCLMULQDQ      $0x00, Z8, Z1, Z4
	VPCLMULQDQ      $0x11, Z8, Z1, Z1
	VPTERNLOGQ      $0x96, Z4, Z1, Z2
	VPCLMULQDQ      $0x00, Z8, Z2, Z4
	VPCLMULQDQ      $0x11, Z8, Z2, Z2
	VPTERNLOGQ      $0x96, Z4, Z2, Z3

one64: // 64 bytes at a time
	SUBQ       $64, CX
	JCS        lanes
	VPCLMULQDQ $0x00, Z8, Z3, Z4
	VPCLMULQDQ $0x11, Z8, Z3, Z3
	VPTERNLOGQ $0x96, 0(SI), Z4, Z3
	ADDQ       $64, SI
	JMP        one64

lanes: // the four lanes into one
	VMOVDQU       fold128<>(SB), X8
	VEXTRACTI32X4 $1, Z3, X0
	VEXTRACTI32X4 $2, Z3, X1
	VEXTRACTI32X4 $3, Z3, X2
	VPCLMULQDQ    $0x00, X8, X3, X4
	VPCLMULQDQ    $0x11, X8, X3, X3
	VPXOR         X4, X3, X3
	VPXOR         X0, X3, X3
	VPCLMULQDQ    $0x00, X8, X3, X4
	VPCLMULQDQ    $0x11, X8, X3, X3
	VPXOR         X4, X3, X3
	VPXOR         X1, X3, X3
	VPCLMULQDQ    $0x00, X8, X3, X4
	VPCLMULQDQ    $0x11, X8, X3, X3
	VPXOR         X4, X3, X3
	VPXOR         X2, X3, X3

	// What is left has the CRC of all, from a state of 0.
	VMOVQ      X3, DX
	VPEXTRQ    $1, X3, BX
	VZEROUPPER
	XORL       AX, AX
	CRC32Q     DX, AX
	CRC32Q     BX, AX
	NOTL       AX
	MOVL       AX, ret+32(FP)
	RET
