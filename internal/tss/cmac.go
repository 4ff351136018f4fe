package tss

import (
	"crypto/cipher"
	"crypto/subtle"
)

const blockLen = 16 // bytes of an AES block

// A cmac computes CMAC over a block cipher of 16 bytes (RFC 4493 §2; SP 800-38B for longer
// keys).
type cmac struct {
	b      cipher.Block
	k1, k2 [blockLen]byte // for a last block that is full, and for one that is padded
	x      [blockLen]byte
}

// init prepares m for the key of b.
func (m *cmac) init(b cipher.Block) {
	m.b = b
	clear(m.x[:])
	b.Encrypt(m.x[:], m.x[:])
	double(&m.k1, &m.x)
	double(&m.k2, &m.k1)
	clear(m.x[:])
}

// double sets dst to the product of a and x in GF(2^128), which makes subkeys (RFC 4493 §2.3).
// No branch depends on the bits of a.
func double(dst, a *[blockLen]byte) {
	carry := a[0] >> 7
	for i := range blockLen - 1 {
		dst[i] = a[i]<<1 | a[i+1]>>7
	}
	dst[blockLen-1] = a[blockLen-1]<<1 ^ carry*0x87
}

// sum returns the MAC of msg, which it borrows. The result is valid until the next call.
func (m *cmac) sum(msg []byte) *[blockLen]byte {
	clear(m.x[:])
	for len(msg) > blockLen {
		subtle.XORBytes(m.x[:], m.x[:], msg[:blockLen])
		m.b.Encrypt(m.x[:], m.x[:])
		msg = msg[blockLen:]
	}
	subtle.XORBytes(m.x[:], m.x[:], msg)
	if len(msg) == blockLen {
		subtle.XORBytes(m.x[:], m.x[:], m.k1[:])
	} else {
		m.x[len(msg)] ^= 0x80
		subtle.XORBytes(m.x[:], m.x[:], m.k2[:])
	}
	m.b.Encrypt(m.x[:], m.x[:])
	return &m.x
}
