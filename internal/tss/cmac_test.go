package tss

import (
	"crypto/aes"
	"encoding/hex"
	"testing"
)

// The CMACs are those of RFC 4493 §4 (AES-128) and SP 800-38B §D.3 (AES-256): subkeys, and the
// MACs of the first 0, 16, 40 and 64 bytes of one message.
func TestCMACKnown(t *testing.T) {
	msg := unhex(t, "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"+
		"30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710")
	for _, c := range []struct {
		name, key, k1, k2 string
		mac               [4]string
	}{
		{
			"AES-128", "2b7e151628aed2a6abf7158809cf4f3c", "fbeed618357133667c85e08f7236a8de", "f7ddac306ae266ccf90bc11ee46d513b",
			[4]string{"bb1d6929e95937287fa37d129b756746", "070a16b46b4d4144f79bdd9dd04a287c", "dfa66747de9ae63030ca32611497c827", "51f0bebf7e3b9d92fc49741779363cfe"},
		},
		{
			"AES-256", "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
			"cad1ed03299eedac2e9a99808621502f", "95a3da06533ddb585d3533010c42a0d9",
			[4]string{"028962f61b7bf89efc6b551f4667d983", "28a7023f452e8f82bd4bf28d8c37c35c", "aaf3d8f1de5640c232f5b169b9c911e6", "e1992190549f6ed5696a2c056c315410"},
		},
	} {
		b, err := aes.NewCipher(unhex(t, c.key))
		if err != nil {
			t.Fatal(err)
		}
		var m cmac
		m.init(b)
		if hex.EncodeToString(m.k1[:]) != c.k1 || hex.EncodeToString(m.k2[:]) != c.k2 {
			t.Errorf("%s: subkeys %x %x", c.name, m.k1, m.k2)
		}
		for i, n := range []int{0, 16, 40, 64} {
			for range 2 { // nothing of the first sum may remain
				if got := hex.EncodeToString(m.sum(msg[:n])[:]); got != c.mac[i] {
					t.Errorf("%s, %d bytes: %s, want %s", c.name, n, got, c.mac[i])
				}
			}
		}
	}
}
