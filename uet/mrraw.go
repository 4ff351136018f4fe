package uet

import (
	"encoding/binary"

	"github.com/uetkit/uetkit/fi"
)

// rawKeyLen is the length of a raw key: keys have 64 bits, so it is the key.
const rawKeyLen = 8

// RawAttr writes the raw key of the region to key (fi_mr_raw_attr), and returns the address of its first
// byte and the length of the raw key. fi.ETOOSMALL: key is shorter than that length, which is returned
// all the same (R-MR-14). fi.EOPBADSTATE: the region is not enabled. fi.EBADFLAGS: flags other than 0.
func (m *MR) RawAttr(key []byte, flags fi.Flags) (base uint64, n int, err error) {
	k := m.Key()
	switch {
	case flags != 0:
		return 0, 0, fi.EBADFLAGS
	case k == KeyNotAvail:
		return 0, 0, fi.EOPBADSTATE
	case len(key) < rawKeyLen:
		return 0, rawKeyLen, fi.ETOOSMALL
	}
	binary.BigEndian.PutUint64(key, k)
	return m.base, rawKeyLen, nil
}

// MapRaw returns the key that a raw key of a peer stands for (fi_mr_map_raw, R-MR-14). base is the
// address that went with it. fi.EINVAL: it is no raw key. fi.EBADFLAGS: flags other than 0.
func (d *Domain) MapRaw(base uint64, raw []byte, flags fi.Flags) (uint64, error) {
	switch {
	case flags != 0:
		return 0, fi.EBADFLAGS
	case len(raw) != rawKeyLen:
		return 0, fi.EINVAL
	}
	return binary.BigEndian.Uint64(raw), nil
}

// UnmapKey frees a key that MapRaw returned (fi_mr_unmap_key). Nothing is kept for one.
func (d *Domain) UnmapKey(uint64) error { return nil }
