package uet

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/transport/wire"
)

// A Security says how endpoints authenticate each other, and which keys seal their packets
// (TSS). It is set in Config.Security; nil stands for no security. Any number of endpoints
// may share it.
//
//	NewClusterKey, LoadClusterKey  one secret that all members have: FI_EP_RDM and
//	                               FI_EP_MSG endpoints
//	msg.NewTLS, msg.LoadTLS        certificates (package uet/msg): FI_EP_MSG endpoints;
//	                               each connection has keys of its own
//
// A secured endpoint accepts only packets that were sealed with a key of the domain.
// Both ends of a connection need the same kind of Security.
//
// The files that a Security was loaded from are checked every second while endpoints,
// passive ones too, are open. An invalid new file is logged, and the old contents stay in
// force.
//
// A Security prints its kind, never a secret. All methods may be called from any goroutine.
type Security struct {
	kind contract.Security

	mu      sync.Mutex // guards what follows; a leaf but for the loggers
	certs   *contract.Certificates
	keys    []ClusterKey    // at most two, first the one that seals
	removed map[string]bool // by Remove
	revoked map[string]bool // by the file of that name
	files   []watched
	users   map[*Endpoint]struct{}
	nodes   map[*cmNode]struct{} // of passive endpoints and dialers
	warn    string
	failed  string // the last error of a reload that was logged
	closed  bool
	stop    context.CancelFunc // ends the watcher
	done    chan struct{}

	load func() error // reads the files; with load's own lock
	once sync.Mutex   // one load at a time

	// A connection gets a new key when no more than rekeyBelow packets are left under its
	// key. maxFrames is the number that a key begins with. 0 means the defaults.
	rekeyBelow, maxFrames uint64

	rekeyMask  uint64 // RekeyByTSC
	rekeyShift uint8
}

// defaultRekeyBelow is an hour's packets at ten million a second. A key may seal 2^40.
const defaultRekeyBelow = 1 << 35

// watchEvery is the interval between checks of the files (T36: a removed member is out
// after 5 s).
const watchEvery = time.Second

// A watched file, as it was when it was read.
type watched struct {
	path string
	mod  time.Time
	size int64
}

func init() {
	contract.Secure = func(c *contract.Certificates) (any, error) { return certified(c) }
}

// certified makes a Security from certificates, and reads their files if they are of files.
func certified(c *contract.Certificates) (*Security, error) {
	s := newSecurity(contract.SecTLS)
	s.certs = c
	if c.Load == nil {
		return s, nil
	}
	s.load = func() error {
		files := []watched{look(c.CertFile), look(c.KeyFile), look(c.RevokedFile)}
		use, err := c.Load()
		if err != nil {
			return fmt.Errorf("uet: security: %w", contract.Unreadable(err, contract.Makes))
		}
		revoked, err := readRevoked(c.RevokedFile)
		if err != nil {
			return err
		}
		s.mu.Lock()
		use()
		s.revoked, s.files, s.warn = revoked, files, openToOthers(c.KeyFile)
		s.mu.Unlock()
		s.expel()
		return nil
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// NewClusterKey makes a Security from one or two cluster keys. Of the keys that are not
// Next, the one with the highest generation seals packets; packets under the other key are
// accepted as well. fi.EINVAL: no key, more than two, or two that do not fit together.
func NewClusterKey(keys ...ClusterKey) (*Security, error) {
	if err := checkKeys(keys); err != nil {
		return nil, fmt.Errorf("uet: security: %w: %w", err, fi.EINVAL)
	}
	s := newSecurity(contract.SecPSK)
	s.keys = inOrder(keys)
	return s, nil
}

// LoadClusterKey reads cluster keys from a file, as WriteClusterKey makes it:
//
//	uetkit-cluster-key 1
//	key 2 0123… 64 hexadecimal digits
//	key 1 …
//
// The key of the highest generation seals; packets of the one before are accepted as well.
// Instead of an older key there may be a line "next" with a newer key, which is accepted
// but does not seal yet. To change the key without a pause, give every host "key 1, next
// 2", then "key 2, key 1", then "key 2". If a host seals with a key before the others have
// it, its messages wait, for PeerTimeout at most, and it cannot connect to the others. A
// host with only the old key is excluded when the last file no longer names that key.
// Connections that began with that key end then, too, and must be made anew.
func LoadClusterKey(path string) (*Security, error) {
	s := newSecurity(contract.SecPSK)
	s.load = func() error {
		files := []watched{look(path)}
		keys, err := ReadClusterKey(path)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.keys, s.files, s.warn = keys, files, openToOthers(path)
		s.mu.Unlock()
		s.expel()
		return s.newKeys()
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

func newSecurity(kind contract.Security) *Security {
	return &Security{kind: kind, removed: map[string]bool{}, users: map[*Endpoint]struct{}{}, nodes: map[*cmNode]struct{}{}}
}

// String and Format print the kind of the Security, with every verb, and no secret.
func (s *Security) String() string {
	if s == nil {
		return "security off"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind == contract.SecTLS {
		return "security by certificates"
	}
	gens := make([]string, len(s.keys))
	for i := range s.keys {
		gens[i] = fmt.Sprint(s.keys[i].Generation)
	}
	return "security by cluster key, generation " + strings.Join(gens, " and ")
}

func (s *Security) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText returns what String does, so that encoders show no secret.
func (s *Security) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// RekeyByTSC makes the key of a packet depend on its counter (TSC, 48 bits): the value
// (TSC AND mask) >> shift goes into the derivation (S-KEY-05). Nothing on the wire says so,
// and both ends must do the same, or they drop each other's packets. It is for the secure
// domain of a cluster key, which endpoints without a connection use; that of a connection has
// keys of its own. Mask 0, the default, is off. The UEC reference provider has mask 0xff00 and
// shift 8, a new key each 256 packets. A change costs both ends a derivation, and so does a
// forged packet its target: choose a mask that changes the key seldom.
//
// Call it before any endpoint uses the Security. fi.EBUSY: one does. fi.EINVAL: no cluster key,
// or the value does not fit: mask has 48 bits, the result 32.
func (s *Security) RekeyByTSC(mask uint64, shift uint8) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.kind != contract.SecPSK:
		return fmt.Errorf("uet: security: rekey by TSC is for a cluster key: %w", fi.EINVAL)
	case mask > wire.TSCMax || shift > 47 || mask>>shift > 1<<32-1:
		return fmt.Errorf("uet: security: rekey by TSC: mask %#x, shift %d: %w", mask, shift, fi.EINVAL)
	case len(s.users) > 0 || len(s.nodes) > 0:
		return fmt.Errorf("uet: security: rekey by TSC: endpoints use it: %w", fi.EBUSY)
	}
	s.rekeyMask, s.rekeyShift = mask, shift
	return nil
}

// Rekey gives every connection a new key, at both ends, without loss. It waits until all
// have it, five seconds at most, and then returns fi.ETIMEDOUT. Connections that end
// meanwhile do not count. Endpoints without a connection keep their keys, which come from
// the cluster key.
func (s *Security) Rekey() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, ep := range s.endpoints() {
		wg.Go(func() {
			if err := ep.rekey(ctx); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Remove ends the connections with a member and accepts no further ones. It works with
// certificates only. With a cluster key it fails with fi.EINVAL, because a member can use
// any name: give the others a new key instead.
func (s *Security) Remove(member string) error {
	if s.kind != contract.SecTLS {
		return fmt.Errorf("uet: security: members of a cluster key have no name; give the others a new key: %w", fi.EINVAL)
	}
	s.mu.Lock()
	s.removed[member] = true
	s.mu.Unlock()
	s.expel()
	return nil
}

// Reload reads the files again at once. If they are invalid, it returns the error and
// changes nothing. Without files there is nothing to do.
func (s *Security) Reload() error {
	s.once.Lock()
	defer s.once.Unlock()
	if s.load == nil {
		return nil
	}
	return s.load()
}

// Close forgets the secrets. fi.EBUSY: endpoints use them. fi.EBADF: it is closed.
func (s *Security) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fi.EBADF
	case len(s.users) > 0 || len(s.nodes) > 0:
		return fi.EBUSY
	}
	s.closed = true
	clear(s.keys)
	if s.certs != nil && s.certs.Forget != nil {
		s.certs.Forget()
	}
	s.keys, s.certs = nil, nil
	return nil
}

// configure sets the security of a node of connection management. leaveNode undoes it when
// the node is closed.
func (s *Security) configure(n *cmNode, c *contract.Config) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("uet: security: %w", fi.EBADF)
	}
	s.nodes[n] = struct{}{}
	s.begin()
	c.Security, c.Certificates, c.Member = s.kind, s.certs, s.admit
	if s.kind == contract.SecPSK {
		c.PSK = s.psk
	}
	return nil
}

func (s *Security) leaveNode(n *cmNode) {
	if s != nil {
		s.mu.Lock()
		delete(s.nodes, n)
		s.end()
	}
}

// psk returns the secrets of connection management, in order. They differ from those that
// seal packets.
func (s *Security) psk() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out [][]byte
	for i := range s.keys {
		k, err := hkdf.Key(sha256.New, s.keys[i].Key[:], nil, "uetkit connection management", keyLen)
		if err == nil { // it always is
			out = append(out, k)
		}
	}
	return out
}

// admit returns an error for members that were removed.
func (s *Security) admit(name string) error {
	if s.out(name) {
		return fmt.Errorf("uet: security: member %q was removed: %w", name, fi.EKEYREJECTED)
	}
	return nil
}

func (s *Security) out(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removed[name] || s.revoked[name]
}

// endpoints returns the current users.
func (s *Security) endpoints() []*Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.users))
}

// expel ends the connections of removed members.
func (s *Security) expel() {
	s.mu.Lock()
	nodes := slices.Collect(maps.Keys(s.nodes))
	s.mu.Unlock()
	for _, n := range nodes {
		n.recheck()
	}
}

// newKeys gives the cluster keys to all endpoints that seal with them.
func (s *Security) newKeys() error {
	var errs []error
	for _, ep := range s.endpoints() {
		if ep.connection == nil {
			errs = append(errs, ep.clusterKeys())
		}
	}
	return errors.Join(errs...)
}

// join counts an enabled endpoint.
func (s *Security) join(ep *Endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("uet: security: %w", fi.EBADF)
	}
	s.users[ep] = struct{}{}
	s.begin()
	if s.warn != "" {
		ep.log.Warn(s.warn)
		s.warn = "" // once for each time that the file was read
	}
	return nil
}

// leave undoes join.
func (s *Security) leave(ep *Endpoint) {
	s.mu.Lock()
	delete(s.users, ep)
	s.end()
}

// begin starts the watcher when the Security is first used. The caller has the lock.
func (s *Security) begin() {
	if s.stop == nil {
		var ctx context.Context
		ctx, s.stop = context.WithCancel(context.Background())
		s.done = make(chan struct{})
		go s.watch(ctx, s.done)
	}
}

// end stops the watcher with the last user. It releases the lock.
func (s *Security) end() {
	stop, done := s.stop, s.done
	if len(s.users) > 0 || len(s.nodes) > 0 || stop == nil {
		s.mu.Unlock()
		return
	}
	s.stop = nil
	s.mu.Unlock()
	stop()
	<-done
}

// watch checks the files, and how many packets are left under each key.
func (s *Security) watch(ctx context.Context, done chan struct{}) {
	defer close(done)
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if s.changed() {
			if err := s.Reload(); err != nil {
				s.complain(err)
			}
		}
		for _, ep := range s.endpoints() {
			ep.tendKeys(ctx)
		}
	}
}

// changed reports whether a file differs from the one that was read.
func (s *Security) changed() bool {
	s.mu.Lock()
	files := s.files
	s.mu.Unlock()
	for _, f := range files {
		if look(f.path) != f {
			return true
		}
	}
	return false
}

// complain logs an error of a reload, once.
func (s *Security) complain(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == err.Error() {
		return
	}
	for ep := range s.users {
		s.failed = err.Error()
		ep.log.Error("security files not read again; what was read before stays in force", slog.Any("error", err))
		return
	}
}

// look returns the present state of a file; a missing file has no time.
func look(path string) watched {
	w := watched{path: path}
	if fi, err := os.Stat(path); err == nil {
		w.mod, w.size = fi.ModTime(), fi.Size()
	}
	return w
}

// openToOthers returns a warning if others than the owner can read a secret.
func openToOthers(path string) string {
	st, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" || st.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("%s is open to others than its owner; chmod 600 it", path)
}

// readRevoked reads names, one a line. Without the file there are none.
func readRevoked(path string) (map[string]bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("uet: security: %w", contract.Unreadable(err, ""))
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if name := strings.TrimSpace(line); name != "" && name[0] != '#' {
			names[name] = true
		}
	}
	return names, nil
}
