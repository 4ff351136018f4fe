package uet

import (
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestErrnoOfEveryReturnCode(t *testing.T) {
	// R-ERR-01 to R-ERR-32, S-ERR-02, S-ERR-56, by number: this table is written from the rules,
	// not from the code.
	want := map[wire.RC]fi.Errno{
		0x02: fi.ENORX, 0x03: fi.ESHUTDOWN, 0x04: fi.ENORX, 0x05: fi.ENORX, 0x06: fi.EOPNOTSUPP, 0x07: fi.EMSGSIZE,
		0x08: fi.EFAULT, 0x09: fi.EACCES, 0x0A: fi.EREMOTEIO, 0x0B: fi.EFAULT, 0x0C: fi.EFAULT, 0x0D: fi.EREMOTEIO, 0x0E: fi.EREMOTEIO,
		0x0F: fi.EOPNOTSUPP, 0x10: fi.EOPNOTSUPP, 0x11: fi.EMSGSIZE, 0x12: fi.EINVAL, 0x13: fi.EOTHER, 0x14: fi.EOTHER,
		0x15: fi.EOVERFLOW, 0x16: fi.EOTHER, 0x17: fi.EACCES, 0x18: fi.EPERM, 0x19: fi.ECONNREFUSED, 0x1A: fi.ECONNREFUSED,
		0x1B: fi.EACCES, 0x1C: fi.EKEYREJECTED, 0x1D: fi.EFAULT, 0x1E: fi.ECANCELED, 0x1F: fi.EHOSTUNREACH, 0x20: fi.EIO,
		0x21: fi.EREMOTEIO, 0x22: fi.ETRUNC, 0x23: fi.EIO, 0x24: fi.ENOBUFS,
	}
	for rc := wire.RC(0); rc < 0x40; rc++ { // 6 bits
		err, prov := errno(transport.Rejected, rc, 0)
		w, known := want[rc]
		switch {
		case known && (err != w || prov != uint32(rc)):
			t.Errorf("RC %v: %v, prov %#x; want %v, prov %#x", rc, err, prov, w, uint8(rc))
		case !known && rc > wire.RCOK && rc <= 0x2F && err != fi.EIO:
			t.Errorf("reserved RC %#x: %v, want that of UNCOR", uint8(rc), err)
		case !known && rc > 0x2F && err != fi.EOTHER:
			t.Errorf("RC %#x: %v, want EOTHER", uint8(rc), err)
		case err == fi.Success:
			t.Errorf("RC %v fails with success", rc)
		}
		if s := ProvString(uint32(rc)); s == "" {
			t.Errorf("RC %v has no text", rc)
		}
	}
}

func TestErrnoOfEveryNackCode(t *testing.T) {
	// S-ERR-02: the number of the provider is 0x100 and the code, and has a text.
	for c := 1; c < 256; c++ {
		nack := wire.NackCode(c)
		err, prov := errno(transport.Aborted, 0, nack)
		want := fi.ECONNABORTED // R-ERR-34
		if nack >= 0x04 && nack <= 0x0A {
			want = fi.ENOBUFS // F32
		}
		if err != want || prov != 0x100+uint32(c) {
			t.Errorf("NACK %v: %v, prov %#x; want %v, prov %#x", nack, err, prov, want, 0x100+c)
		}
		if ProvString(prov) == "" {
			t.Errorf("NACK %v has no text", nack)
		}
	}
}

func TestErrnoOfEveryCause(t *testing.T) {
	want := map[transport.Cause]struct {
		err  fi.Errno
		prov uint32
	}{
		transport.Truncated:   {fi.ETRUNC, 0},         // R-ERR-38
		transport.Cancelled:   {fi.ECANCELED, 0},      // R-ERR-37
		transport.TimedOut:    {fi.ETIMEDOUT, 0x1FF},  // R-ERR-33
		transport.Unreachable: {fi.EHOSTUNREACH, 0},   // R-ERR-35
		transport.Aborted:     {fi.ECONNABORTED, 0},   // R-ERR-34
		transport.PeerError:   {fi.EIO, 0x23},         // R-ERR-45
		transport.NoResource:  {fi.ENOBUFS, 0},        // F32
		transport.NotReady:    {fi.ENORX, 0},          // F18
		transport.TooBig:      {fi.EMSGSIZE, 0},       // F7
		transport.Closed:      {fi.ECANCELED, 0},      // F27
		transport.NoMessage:   {fi.ENOMSG, 0},         // R-ERR-39
		transport.NoKey:       {fi.EKEYREJECTED, 0},   // F33
		transport.Untold:      {fi.EOPNOTSUPP, 0x400}, // R-CMPL-12
	}
	for c := transport.OK + 1; c.String() != "unknown cause"; c++ {
		if c == transport.Rejected {
			continue
		}
		w, known := want[c]
		if !known {
			t.Errorf("cause %v is not in the table of this test", c)
		}
		if err, prov := errno(c, 0, 0); err != w.err || prov != w.prov {
			t.Errorf("cause %v: %v, prov %#x; want %v, prov %#x", c, err, prov, w.err, w.prov)
		}
	}
	if err, _ := errno(200, 0, 0); err != fi.EOTHER {
		t.Errorf("an unknown cause: %v", err)
	}
	// F32: the code of the short resource is reported.
	if err, prov := errno(transport.NoResource, 0, 0x04); err != fi.ENOBUFS || prov != 0x104 {
		t.Errorf("no PDC for too long: %v, prov %#x", err, prov)
	}
}

func TestProvStringNeverEmpty(t *testing.T) {
	// R-CQ-95
	all := []uint32{0, 1, 0x3F, 0x40, 0xFF, 0x100, 0x101, 0x1FF, 0x300, 1 << 31}
	for r := range transport.NumDropReasons {
		all = append(all, ProvDrop+uint32(r))
	}
	for _, p := range all {
		if ProvString(p) == "" {
			t.Errorf("prov %#x has no text", p)
		}
	}
}

func TestPostErr(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fi.Errno
	}{
		{transport.ErrFull, fi.EAGAIN},      // R-EP-20, R-ERR-42
		{transport.ErrTooLong, fi.EMSGSIZE}, // R-MSG-02
		{transport.ErrNoPeer, fi.EINVAL},    // R-AV-19
		{transport.ErrClosed, fi.EBADF},
		{fi.EOPNOTSUPP, fi.EOPNOTSUPP},
	} {
		want(t, postErr(c.err), c.want)
	}
	if postErr(nil) != nil {
		t.Error("no error becomes one")
	}
}
