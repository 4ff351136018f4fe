//go:build linux && (amd64 || arm64)

package pmix

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/uetkit/uetkit/mp/internal/boot"
)

func init() { boot.RegisterPMIx(connect) }

// Words of pmix_common.h. Its types and numbers have been the same since version 2.
const (
	success      = 0
	rankWildcard = 1<<32 - 2 // the job instead of a rank
	scopeGlobal  = 3
	typeString   = 3
	typeUint32   = 14
	maxName      = 255
	maxText      = 1 << 20 // the longest string that is read
)

// proc is pmix_proc_t.
type proc struct {
	nspace [maxName + 1]byte
	rank   uint32
}

// value is pmix_value_t: a type and a union of 24 bytes.
type value struct {
	typ  uint16
	_    [6]byte
	data [3]uint64
}

// functions are those of the library that are called.
type functions struct {
	init     func(me *proc, info unsafe.Pointer, n uintptr) int32
	put      func(scope uint8, key string, v *value) int32
	commit   func() int32
	fence    func(procs unsafe.Pointer, nprocs uintptr, info unsafe.Pointer, n uintptr) int32
	get      func(p *proc, key string, info unsafe.Pointer, n uintptr, v **value) int32
	finalize func(info unsafe.Pointer, n uintptr) int32
	abort    func(status int32, msg string, procs unsafe.Pointer, n uintptr) int32
	explain  func(rc int32) string
	destruct func(v *value) // frees what a value points to
	free     func(v *value)
}

// library opens libpmix once for the process.
var library = sync.OnceValues(func() (*functions, error) { return open("libpmix.so.2") })

func open(name string) (*functions, error) {
	lib, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, &Error{Call: "dlopen", Why: err.Error() + "; Debian has it in libpmix2, or start the program with MP_RANK, MP_SIZE and MP_ROOT"}
	}
	f := &functions{}
	for name, ptr := range map[string]any{
		"PMIx_Init": &f.init, "PMIx_Put": &f.put, "PMIx_Commit": &f.commit, "PMIx_Fence": &f.fence, "PMIx_Get": &f.get,
		"PMIx_Finalize": &f.finalize, "PMIx_Abort": &f.abort, "PMIx_Error_string": &f.explain,
	} {
		sym, err := purego.Dlsym(lib, name)
		if err != nil {
			return nil, &Error{Call: name, Why: "the library does not have it: " + err.Error()}
		}
		purego.RegisterFunc(ptr, sym)
	}
	// Older libraries have no function for it: then the few bytes of a value are not freed.
	if sym, err := purego.Dlsym(lib, "PMIx_Value_destruct"); err == nil {
		if free, err := purego.Dlsym(purego.RTLD_DEFAULT, "free"); err == nil {
			purego.RegisterFunc(&f.destruct, sym)
			purego.RegisterFunc(&f.free, free)
		}
	}
	return f, nil
}

// An Error is a call of libpmix that failed.
type Error struct {
	Call string
	// Status is the library's, 0 if it was not called.
	Status int
	Why    string
}

func (e *Error) Error() string {
	s := "pmix: " + e.Call + ": " + e.Why
	if e.Status != 0 {
		s += fmt.Sprintf(" (status %d)", e.Status)
	}
	return s
}

// check makes an error of a status.
func (f *functions) check(call string, rc int32) error {
	if rc == success {
		return nil
	}
	return &Error{Call: call, Status: int(rc), Why: f.explain(rc)}
}

// release frees a value that the library made.
func (f *functions) release(v *value) {
	if v != nil && f.free != nil {
		f.destruct(v)
		f.free(v)
	}
}

// A client is this process as the PMIx server knows it.
type client struct {
	*functions
	me   proc
	size int
}

func connect(context.Context) (boot.Client, error) {
	f, err := library()
	if err != nil {
		return nil, err
	}
	c := &client{functions: f}
	if err := f.check("PMIx_Init", f.init(&c.me, nil, 0)); err != nil {
		return nil, err
	}
	job := c.me
	job.rank = rankWildcard
	var v *value
	if err := f.check("PMIx_Get pmix.job.size", f.get(&job, "pmix.job.size", nil, 0, &v)); err != nil {
		return nil, err
	}
	defer f.release(v)
	if v == nil || v.typ != typeUint32 {
		return nil, &Error{Call: "PMIx_Get pmix.job.size", Why: "the value is no uint32"}
	}
	c.size = int(*(*uint32)(unsafe.Pointer(&v.data)))
	return c, nil
}

func (c *client) Rank() int { return int(c.me.rank) }
func (c *client) Size() int { return c.size }

func (c *client) Job() string {
	name, _, _ := bytes.Cut(c.me.nspace[:], []byte{0})
	return string(name)
}

func (c *client) Put(key, text string) error {
	b := append([]byte(text), 0)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&b[0])
	v := &value{typ: typeString}
	*(*uintptr)(unsafe.Pointer(&v.data)) = uintptr(unsafe.Pointer(&b[0]))
	return c.check("PMIx_Put", c.put(scopeGlobal, key, v))
}

// Fence waits for all. It does not collect: what a rank has put is fetched by the Get that
// asks for it.
func (c *client) Fence() error {
	if err := c.check("PMIx_Commit", c.commit()); err != nil {
		return err
	}
	return c.check("PMIx_Fence", c.fence(nil, 0, nil, 0))
}

func (c *client) Get(rank int, key string) (string, error) {
	p := c.me
	p.rank = uint32(rank)
	var v *value
	if err := c.check(fmt.Sprintf("PMIx_Get %s of rank %d", key, rank), c.get(&p, key, nil, 0, &v)); err != nil {
		return "", err
	}
	defer c.release(v)
	if v == nil || v.typ != typeString {
		return "", &Error{Call: "PMIx_Get " + key, Why: "the value is no string"}
	}
	return text(*(**byte)(unsafe.Pointer(&v.data)))
}

// text copies a C string.
func text(p *byte) (string, error) {
	if p == nil {
		return "", nil
	}
	for n := range maxText {
		if *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) == 0 {
			return string(unsafe.Slice(p, n)), nil
		}
	}
	return "", &Error{Call: "PMIx_Get", Why: fmt.Sprintf("a string of more than %d bytes", maxText)}
}

func (c *client) Finalize() error { return c.check("PMIx_Finalize", c.finalize(nil, 0)) }

func (c *client) Abort(code int, why string) { c.abort(int32(code), why, nil, 0) }
