package tss

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"net/netip"
)

// Key derivation in counter mode over CMAC with AES-256 (S-KEY-03).
const (
	labelCluster = "U1"
	labelServer  = "U2"
	kdfBits      = 352 // output bits: a key of 256 and an IV mask of 96
	maskLen      = 12
	kdfHead      = 4                    // counter, label, 0
	kdfMax       = kdfHead + 4 + 22 + 2 // bytes of the longest input, that of IPv6
)

// A kdf derives keys. It keeps its buffers, so a derivation allocates nothing.
type kdf struct {
	in  [kdfMax]byte
	out [3 * blockLen]byte // key, IV mask, 4 unused bytes
}

// derive fills k.out with the key and IV mask of one source. ssi is used over IPv4 only. Over
// IPv6 the context has the address even if the source has an SSI, as in the UEC reference
// provider (S-KEY-04).
func (k *kdf) derive(m *cmac, label string, epoch uint16, rekey uint32, ssi uint32, src netip.Addr) {
	b := append(k.in[:0], 0, label[0], label[1], 0)
	if src.Is6() {
		b = append(b, 0, 0, 0, 0)
	}
	b = binary.BigEndian.AppendUint16(b, epoch)
	b = binary.BigEndian.AppendUint32(b, rekey)
	if src.Is6() {
		a := src.As16()
		b = append(b, a[:]...)
	} else {
		b = binary.BigEndian.AppendUint32(b, ssi)
	}
	b = binary.BigEndian.AppendUint16(b, kdfBits)
	for i := range 3 {
		b[0] = byte(i + 1)
		copy(k.out[i*blockLen:], m.sum(b)[:])
	}
	clear(m.x[:])
}

func (k *kdf) key() []byte  { return k.out[:KeyLen] }
func (k *kdf) mask() []byte { return k.out[KeyLen : KeyLen+maskLen] }
func (k *kdf) wipe()        { clear(k.out[:]) }

// ClientKey returns what the management of a domain in server mode gives one client: the key
// that the server derives for it in that epoch, and its IV mask (S-KEY-02). client is the SSI
// of the client, src its address.
func ClientKey(server Key, epoch uint16, client uint32, src netip.Addr) (k Key, mask [maskLen]byte) {
	var m cmac
	var d kdf
	m.init(newBlock(server[:]))
	d.derive(&m, labelServer, epoch, 0, client, plainAddr(src))
	copy(k[:], d.key())
	copy(mask[:], d.mask())
	return k, mask
}

func newBlock(key []byte) cipher.Block {
	b, err := aes.NewCipher(key)
	if err != nil {
		panic("BUG: tss: " + err.Error())
	}
	return b
}

func newAEAD(b cipher.Block) cipher.AEAD {
	a, err := cipher.NewGCM(b)
	if err != nil {
		panic("BUG: tss: " + err.Error())
	}
	return a
}

// plainAddr removes from a what is not on the wire: the IPv4-in-IPv6 form, and a zone.
func plainAddr(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is6() {
		a = a.WithZone("")
	}
	return a
}
