package uet

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/internal/tss"
)

// The secure domain of an endpoint. The keys of a connection come from its session, those
// of any other endpoint from the cluster key.

// Secure domain identifiers. They differ so that packets of one kind never open as the
// other kind.
const (
	sdiCluster = 1
	sdiSession = 2
)

// Sources of a connection. Each direction has a derived key of its own, so the two never
// share one.
const (
	ssiConnecting = 1
	ssiAccepting  = 2
)

// A seal is the secure domain of an endpoint. It belongs to the holder of the
// driver's lock.
type seal struct {
	dom *tss.Domain
	// gens are the generations of cluster keys by association number, 0 means none; sealing
	// is the one that seals.
	gens    [2]uint32
	sealing uint32
	epoch   uint16
	// drop is the association number of the key that is removed at dropAt; dropAt 0 means none.
	drop   uint8
	dropAt time.Duration
	warned bool
}

// newSeal makes the secure domain of an endpoint at local, without keys.
func (ep *Endpoint) newSeal(cfg tss.Config) (*seal, error) {
	sec := ep.info.Config.Security
	sec.mu.Lock()
	cfg.MaxFrames = sec.maxFrames
	if ep.connection == nil {
		cfg.RekeyMask, cfg.RekeyShift = sec.rekeyMask, sec.rekeyShift
	}
	sec.mu.Unlock()
	cfg.Mode, cfg.UseSSI = tss.Cluster, true
	s := &seal{}
	if ep.connection != nil {
		// The keys are made for this connection: nothing was ever sealed with them.
		cfg.SDI, cfg.SSI, cfg.PeerSSI = sdiSession, ssiConnecting, ssiAccepting
		if ep.connection.req != nil {
			cfg.SSI, cfg.PeerSSI = ssiAccepting, ssiConnecting
		}
	} else {
		// The key outlives the endpoint, so a later life must not repeat anything of an
		// earlier one: source, epoch and first counter are drawn at random.
		var r [6]byte
		for cfg.SSI == 0 {
			_, _ = crand.Read(r[:]) // never fails
			cfg.SSI, s.epoch = binary.BigEndian.Uint32(r[:]), binary.BigEndian.Uint16(r[4:])
		}
		cfg.SDI, cfg.Epoch = sdiCluster, s.epoch
		// Old keys die when the key file says so: clusterKeys.
		cfg.OldKeyLife = 1 << 62
	}
	var err error
	if s.dom, err = tss.New(cfg); err != nil {
		return nil, fmt.Errorf("uet: enable: %w: %w", err, fi.EINVAL)
	}
	return s, nil
}

// secure registers a sealed endpoint with its Security and installs the keys that exist. No
// other goroutine has the driver yet.
func (ep *Endpoint) secure() error {
	if ep.seal == nil {
		return nil
	}
	sec := ep.info.Config.Security
	if err := sec.join(ep); err != nil { // first, so that no key is missed
		return fmt.Errorf("uet: enable: %w", err)
	}
	if ep.connection == nil {
		if err := ep.clusterKeys(); err != nil {
			sec.leave(ep)
			return fmt.Errorf("uet: enable: %w", err)
		}
	}
	return nil
}

// firstTSC draws the first value of the counter of a cluster key. At least half of the
// values lie above it, which is enough for MaxFrames.
func firstTSC() uint64 {
	var r [8]byte
	_, _ = crand.Read(r[:]) // never fails
	return binary.BigEndian.Uint64(r[:]) >> (64 - 47)
}

// oldKeyLife is how long a cluster key still opens packets after the file no longer names
// it (F33).
const oldKeyLife = 4 * time.Second

// clusterKeys installs the current cluster keys. Keys that are no longer named are
// forgotten after oldKeyLife.
func (ep *Endpoint) clusterKeys() error {
	sec := ep.info.Config.Security
	sec.mu.Lock()
	keys := inOrder(sec.keys)
	sec.mu.Unlock()
	defer clear(keys)
	if len(keys) == 0 {
		return fi.EBADF
	}
	var err error
	ep.drv.Do(func(now time.Duration) { err = ep.seal.take(now, keys) })
	if err != nil {
		return fmt.Errorf("uet: cluster key: %w", err)
	}
	return nil
}

// take installs keys; the first one seals.
func (s *seal) take(now time.Duration, keys []ClusterKey) error {
	k := &keys[0]
	an := k.an()
	switch {
	case k.Generation < s.sealing:
		return fmt.Errorf("generation %d is older than %d, which seals; give a new key the next number: %w", k.Generation, s.sealing, fi.EINVAL)
	case k.Generation > s.sealing && s.sealing != 0 && an == uint8(s.sealing&1):
		return fmt.Errorf("generation %d cannot follow %d, both odd or both even; give a new key the next number: %w",
			k.Generation, s.sealing, fi.EINVAL)
	case k.Generation > s.sealing:
		if err := s.install(k); err != nil {
			return err
		}
		if err := s.dom.Use(now, an, s.epoch, firstTSC()); err != nil {
			return fmt.Errorf("generation %d: %w: %w", k.Generation, err, fi.EKEYREJECTED)
		}
		s.sealing = k.Generation
	}
	if len(keys) > 1 {
		s.dropAt = 0
		return s.install(&keys[1])
	}
	if s.gens[1-an] != 0 && s.dropAt == 0 {
		s.drop, s.dropAt = 1-an, now+oldKeyLife
	}
	return nil
}

// expire removes a key that is no longer named and whose time is over.
func (s *seal) expire(now time.Duration) {
	if s.dropAt != 0 && now >= s.dropAt {
		s.dom.Revoke(s.drop)
		s.gens[s.drop], s.dropAt = 0, 0
	}
}

// install makes the domain accept packets sealed with a key, if it does not already.
func (s *seal) install(k *ClusterKey) error {
	an := k.an()
	if s.gens[an] == k.Generation {
		return nil
	}
	if err := s.dom.Install(an, tss.Key(k.Key)); err != nil {
		return fmt.Errorf("generation %d: %w: %w", k.Generation, err, fi.EKEYREJECTED)
	}
	s.gens[an] = k.Generation
	return nil
}

// tendKeys changes and removes keys whose time or number of packets is used up.
func (ep *Endpoint) tendKeys(ctx context.Context) {
	if ep.seal == nil {
		return
	}
	sec := ep.info.Config.Security
	sec.mu.Lock()
	below := sec.rekeyBelow
	sec.mu.Unlock()
	if below == 0 {
		below = defaultRekeyBelow
	}
	low, worn := false, false
	ep.drv.Do(func(now time.Duration) {
		s := ep.seal
		s.expire(now)
		worn = s.dom.Worn()
		low = s.dom.Ready() && s.dom.Left() < below || worn
		if low && ep.connection == nil && !s.warned {
			s.warned = true
			ep.log.Warn("the cluster key was used for too many packets; give all members a new one", slog.Bool("attacked", worn))
		}
	})
	if !low || ep.connection == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	if err := ep.rekey(ctx); err != nil {
		ep.log.Warn("no new key for a connection", slog.String("local", ep.name.AddrPort().String()), slog.Any("error", err))
	}
}

// rekey gives the endpoint's connection, if it has one, a new key.
func (ep *Endpoint) rekey(ctx context.Context) error {
	l := ep.connection
	if l == nil {
		return nil
	}
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	if s == nil || l.state.Load() != connUp {
		return nil
	}
	if err := s.Rekey(ctx); err != nil && !errors.Is(err, contract.ErrClosed) {
		return fmt.Errorf("uet: rekey: %w", err)
	}
	return nil
}

// firstKey installs the first key of a session and seals with it.
func (l *connection) firstKey(s contract.Session) error {
	if l.ep.seal == nil {
		return nil
	}
	if err := l.installKey(s, 0); err != nil {
		return err
	}
	return l.switchKey(0)
}

func (l *connection) installKey(s contract.Session, gen uint32) error {
	raw, err := s.Key(gen)
	if err != nil {
		return err
	}
	key := tss.Key(raw)
	l.ep.drv.Do(func(time.Duration) { err = l.ep.seal.dom.Install(uint8(gen&1), key) })
	clear(raw[:])
	clear(key[:])
	if err != nil {
		return fmt.Errorf("uet: key %d of a connection: %w: %w", gen, err, fi.EKEYREJECTED)
	}
	return nil
}

func (l *connection) switchKey(gen uint32) error {
	var err error
	l.ep.drv.Do(func(now time.Duration) { err = l.ep.seal.dom.Use(now, uint8(gen&1), 0, 0) })
	if err != nil {
		return fmt.Errorf("uet: key %d of a connection: %w: %w", gen, err, fi.EKEYREJECTED)
	}
	return nil
}
