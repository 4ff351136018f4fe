package driver

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/internal/wait"
)

// A Set looks at the sockets of many Drivers with one system call. It is a udp.Set.
type Set interface {
	// Add adds a Conn, which Ready calls id. It reports whether that is possible.
	Add(c Conn, id int) bool
	Remove(c Conn, id int)
	// Ready appends to ids those of the Conns that have something. It does not block.
	Ready(ids []int) []int
	// Wait, Wake, Nap and Rouse are like those of a Conn. Nap reports false if it did not sleep.
	Wait(timeout time.Duration) error
	Wake()
	Nap(timeout time.Duration) bool
	Rouse()
	Close() error
}

// A Joiner is a Conn that a Set can watch.
type Joiner interface {
	Conn
	NewSet() (Set, error)
}

// A Group drives the Drivers of one wait object for its readers, and costs what has to be done, not
// what there is: one look finds the sockets that have something, a heap has the deadlines, and a
// list the Drivers that have something to do when the application polls. Of automatic progress and
// of readers that sleep for long one goroutine takes care, which is that of the group
// (docs/decisions/0058).
//
// A lock taken while another is held comes later in this order: looking, that of a Driver, mu.
type Group struct {
	looking sync.Mutex // held by who takes turns
	set     Set
	clock   func() int64           // that of all members
	lead    atomic.Pointer[Driver] // a member, whose thread's processor is that of all
	armed   atomic.Int32

	// The fields from here to now belong to the holder of looking.

	ids    []int
	batch  []*member
	late   []*member // whose deadlines have come
	number uint64    // of this look
	last   int64     // when the last look was
	woken  bool      // a sleep on the set ended since
	now    int64

	mu      sync.Mutex
	members []*member // by id; nil means free
	free    []int     // ids
	all     []*member // the members, in any order
	autos   int       // members with automatic progress
	stirred []*member // may have something to do that neither a socket nor a deadline tells
	agenda  agenda
	touched uint64 // looks of the application
	closed  bool

	// The goroutine, as sleeper of a Driver has it.
	started  bool
	watching bool
	napping  bool
	until    int64 // when it, or the reader that naps, wakes by itself; 0 while it runs
	seen     uint64
	held     bool // its last look left members stirred
	wake     chan struct{}
	done     chan struct{}
}

// never is a moment of the runtime's clock that does not come.
const never = 1<<63 - 1

// A member is a Driver in a Group. Its fields belong to the holder of Group.mu, except looked.
type member struct {
	d       *Driver
	g       *Group
	id      int
	place   int // in Group.all
	stirred bool
	gone    bool
	when    int64  // the deadline in the agenda; never if it has none
	at      int    // where it is in the agenda, -1 if it is not
	looked  uint64 // the number of the look in which it took its last turn
	deaf    bool   // its socket is broken and no longer in the set; belongs to the lock of d
}

// NewGroup makes a Group that Drivers like d can join. It returns nil where there is no such
// thing: then each Driver is polled.
func (d *Driver) NewGroup() wait.Group {
	j, ok := d.conn.(Joiner)
	if !ok {
		return nil
	}
	set, err := j.NewSet()
	if err != nil {
		return nil
	}
	return newGroup(set, d.clock.read)
}

func newGroup(set Set, clock func() int64) *Group {
	return &Group{set: set, clock: clock, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

var _ wait.Group = (*Group)(nil)

// Add makes p a member and reports whether that is possible.
func (g *Group) Add(p wait.Progress) bool {
	d, ok := p.(*Driver)
	if !ok {
		return false
	}
	d.h.lock()
	defer d.unlock()
	if d.closed || d.out.dead {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	id := len(g.members)
	if n := len(g.free); n > 0 {
		id = g.free[n-1]
		g.free = g.free[:n-1]
	} else {
		g.members = append(g.members, nil)
	}
	if !g.set.Add(d.conn, id) {
		g.free = append(g.free, id)
		return false
	}
	m := &member{d: d, g: g, id: id, place: len(g.all), when: never, at: -1}
	g.members[id] = m
	g.all = append(g.all, m)
	g.lead.CompareAndSwap(nil, d)
	d.members = append(d.members, m)
	d.kick() // its goroutine leaves the work to that of the group
	m.stir()
	m.due(d.moment(d.deadline()))
	if d.auto {
		if g.autos++; !g.started {
			g.start()
		} else {
			g.ring() // it may sleep on the clock until it is needed
		}
	}
	g.rouse(gatherSlack)
	return true
}

// Remove undoes Add.
func (g *Group) Remove(p wait.Progress) {
	if d, ok := p.(*Driver); ok {
		d.h.lock()
		d.quit(g)
		d.unlock()
	}
}

// quit ends the membership in g, nil means in all groups.
func (d *Driver) quit(g *Group) {
	if d.members == nil {
		return
	}
	d.members = slices.DeleteFunc(d.members, func(m *member) bool {
		if g != nil && m.g != g {
			return false
		}
		m.leave()
		return true
	})
	if len(d.members) > 0 {
		return
	}
	d.members = nil
	if d.auto && !d.closed {
		if !d.sleeper.started {
			d.start()
		} else {
			d.kick()
		}
	}
}

// leave removes a member from its group, with the lock of its Driver held.
func (m *member) leave() {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	m.gone = true
	m.due(never)
	g.members[m.id] = nil
	g.free = append(g.free, m.id)
	last := g.all[len(g.all)-1]
	g.all[m.place], last.place = last, m.place
	g.all[len(g.all)-1] = nil
	g.all = g.all[:len(g.all)-1]
	if m.d.auto {
		g.autos--
	}
	if !g.closed {
		g.set.Remove(m.d.conn, m.id)
	}
	if g.lead.Load() == m.d {
		if g.lead.Store(nil); len(g.all) > 0 {
			g.lead.Store(g.all[0].d)
		}
	}
}

// Close ends the group. Its members go on without it. What a late reader calls afterwards does
// nothing.
func (g *Group) Close() {
	g.mu.Lock()
	all := slices.Clone(g.all)
	g.mu.Unlock()
	for _, m := range all {
		g.Remove(m.d)
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	started := g.started
	g.kick()
	if started {
		g.ring() // it may wait on the clock while a reader naps
	}
	g.closed = true
	g.mu.Unlock()
	if started {
		g.set.Wake()
		<-g.done
	}
	g.looking.Lock()
	defer g.looking.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.set.Close()
}

// moment is t on the clock of all Drivers with sockets.
func (d *Driver) moment(t time.Duration) int64 {
	if t == forever {
		return never
	}
	return int64(t) + d.clock.begun
}

// tell has the groups know that something changed: there may be something to do when the
// application polls next, and the deadline may have moved.
func (d *Driver) tell() {
	d.rest() // thousands of members share a few slabs
	t := d.moment(d.deadline())
	for _, m := range d.members {
		g := m.g
		g.mu.Lock()
		m.stir()
		m.due(t)
		g.heed()
		g.mu.Unlock()
	}
}

// heed ends a sleep that would last too long past a deadline that may be new.
func (g *Group) heed() {
	switch {
	case g.napping || g.armed.Load() > 0:
		g.rouse(gatherSlack)
	case g.autos > 0:
		g.rouse(int64(stepBack))
	}
}

const gatherSlack = int64(gatherWait)

// stir lists the member for the next look of the application.
func (m *member) stir() {
	if !m.stirred && !m.gone {
		m.stirred = true
		m.g.stirred = append(m.g.stirred, m)
	}
}

// due notes a deadline. A later one is noted when the present one has come.
func (m *member) due(t int64) {
	switch a := &m.g.agenda; {
	case t == never && m.gone:
		if m.at >= 0 {
			a.remove(m)
		}
	case m.gone || t >= m.when:
	case m.at < 0:
		m.when = t
		a.add(m)
	default:
		m.when = t
		a.up(m.at)
	}
}

// rouse ends a sleep that would last too long past the earliest deadline.
func (g *Group) rouse(slack int64) {
	if g.until == 0 {
		return
	}
	if t := g.agenda.first(); t != never && t+slack < g.until {
		g.kick()
	}
}

// kick ends the sleep of the goroutine, or of the reader that naps.
func (g *Group) kick() {
	switch {
	case g.until == 0 || g.closed:
		return
	case g.napping:
		g.set.Rouse()
	case g.watching:
		g.set.Wake()
	default:
		g.ring()
	}
	g.until = 0
}

// ring ends a sleep of the goroutine on the clock.
func (g *Group) ring() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *Group) start() {
	g.started = true
	go progress(g, g.wake, g.done)
}

// Poll is one turn of a reader that found its queue empty, as that of a Driver is: it drives the
// members that have something to do. It does nothing while another goroutine is in it.
func (g *Group) Poll() bool {
	if !g.looking.TryLock() {
		return false
	}
	worked := g.look(true)
	g.looking.Unlock()
	return worked
}

// look drives the members with something in the socket, those that are stirred, and those whose
// deadlines have come. inline is false for the goroutine.
func (g *Group) look(inline bool) (worked bool) {
	g.number++
	before := g.now
	g.now = g.clock()
	g.last = before
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false
	}
	if inline {
		g.touched++
	}
	g.batch, g.stirred = g.stirred, g.batch[:0]
	for _, m := range g.batch {
		m.stirred = false
	}
	g.mu.Unlock()
	g.ids = g.set.Ready(g.ids[:0])
	for _, id := range g.ids {
		g.mu.Lock()
		m := g.members[id]
		g.mu.Unlock()
		if m != nil && m.turn(inline, true) {
			worked = true
		}
	}
	for i, m := range g.batch {
		g.batch[i] = nil
		if m.turn(inline, false) {
			worked = true
		}
	}
	g.mu.Lock()
	for m := g.agenda.take(g.now); m != nil; m = g.agenda.take(g.now) {
		g.late = append(g.late, m)
	}
	g.mu.Unlock()
	for i, m := range g.late {
		g.late[i] = nil
		if m.turn(inline, false) {
			worked = true
		}
	}
	g.late = g.late[:0]
	g.woken = false
	return worked
}

// turn is a turn of a member. filled says that its socket has something. A member has at most one
// turn in a look.
func (m *member) turn(inline, filled bool) (worked bool) {
	g, d := m.g, m.d
	if !d.h.try() {
		m.put() // the next look tries again
		return false
	}
	if d.closed || len(d.members) == 0 {
		d.unlock()
		return false
	}
	if m.looked != g.number {
		m.looked = g.number
		if last := time.Duration(g.last - d.clock.begun); last > d.turns.last {
			d.turns.last = last // its socket had nothing then
		}
		if inline {
			d.turns.inline++
			d.stats.Turns++
		}
		d.turns.woken = d.turns.woken || g.woken
		// No timer is judged before a look at the socket: there may be more than the set told.
		if filled || d.out.dead || d.moment(d.deadline()) <= g.now {
			worked = d.turn(inline)
		} else {
			worked = d.unfilled(inline)
		}
	}
	m.told(worked && !inline)
	if d.h.free(); d.h.left() {
		d.again()
	}
	return worked
}

// told has the groups of the Driver know what is left to do after a turn. again says that the
// goroutine is to look once more, because nobody else may: that ends the turn of the member.
func (m *member) told(again bool) {
	d := m.d
	d.rest() // the next member has the same slab, which is in the cache
	quiet, t := d.calm(), d.moment(d.deadline())
	if again && !quiet {
		t = m.g.now + 1 // in the next look
	}
	for _, o := range d.members {
		g := o.g
		g.mu.Lock()
		if !quiet {
			o.stir()
		}
		o.due(t)
		g.heed() // the goroutine itself does not sleep now
		g.mu.Unlock()
	}
	if d.out.dead && !m.deaf {
		m.deaf = true // or the set would tell of it for ever
		m.g.mu.Lock()
		if !m.gone { // else its id may be another's
			m.g.set.Remove(d.conn, m.id)
		}
		m.g.mu.Unlock()
	}
}

// put lists a member again that had no turn.
func (m *member) put() {
	m.g.mu.Lock()
	m.stir()
	m.due(m.g.now + 1)
	m.g.mu.Unlock()
}

// calm reports whether a turn would do nothing before the deadline, unless the socket has something
// or a method is called.
func (d *Driver) calm() bool {
	return d.quiet.on && !d.company.waits && !d.out.surplus && len(d.out.unsent) == 0 && !d.out.dead && !d.work.stuck && d.core.Events() == 0
}

// unfilled is a turn of a Driver whose socket is known to have nothing.
func (d *Driver) unfilled(inline bool) bool {
	more := false
	if d.h.take() || d.work.stuck {
		d.intake()
		more = true
	}
	d.turns.last, d.turns.woken = d.clock.tick(), false
	return d.idle(inline, more)
}

// step is a turn of the goroutine, which sleeps as that of a Driver does.
func (g *Group) step() (wait time.Duration, socket, over bool) {
	g.looking.Lock()
	defer g.looking.Unlock()
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return 0, false, true
	}
	if g.napping {
		g.mu.Unlock()
		return stepBack, false, false
	}
	g.woken = g.woken || g.watching
	g.watching, g.until = false, 0
	polled := g.touched != g.seen
	g.seen = g.touched
	switch {
	case g.armed.Load() > 0:
	case g.autos == 0 && (polled || !g.held):
		g.until = never
		g.mu.Unlock()
		return forever, false, false
	case polled:
		g.until = g.clock() + int64(stepBack)
		g.mu.Unlock()
		return stepBack, false, false
	}
	g.mu.Unlock()
	if g.look(false) {
		return 0, false, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = len(g.stirred) > 0
	now, t := g.clock(), g.agenda.first()
	if t <= now {
		return 0, false, false
	}
	g.until, g.watching = t, true
	if t == never {
		return forever, true, false
	}
	return time.Duration(t - now), true, false
}

func (g *Group) sleep(timeout time.Duration) { _ = g.set.Wait(timeout) }

// settle delivers what posts have ended, and reports whether there was something. The caller holds
// looking.
func (g *Group) settle() (some bool) {
	g.mu.Lock()
	ms := append(g.batch[:0], g.stirred...)
	g.mu.Unlock()
	for i, m := range ms {
		ms[i] = nil
		m.d.h.lock()
		if !m.d.closed && m.d.settle() > 0 {
			some = true
			m.d.rouse()
		}
		m.d.unlock()
	}
	g.batch = ms[:0]
	return some
}

// Arm says that a reader sleeps until an event is delivered.
func (g *Group) Arm() {
	g.armed.Add(1)
	g.looking.Lock()
	g.settle() // events that came while no reader slept
	g.looking.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
	case !g.started:
		g.start()
	case !g.watching:
		g.kick()
	default:
		g.rouse(gatherSlack) // it was not told of deadlines while no reader slept
	}
}

// Disarm ends one Arm.
func (g *Group) Disarm() { g.armed.Add(-1) }

// Nap sleeps on the caller's thread until a socket has something, until a deadline, at most for
// limit, or until Rouse, as that of a Driver does.
func (g *Group) Nap(limit time.Duration) bool {
	d := g.lead.Load()
	if d == nil || g.armed.Load() > 0 || !nappers.enter(d.cpu.longOnes != 0 || d.Crowded()) {
		return false
	}
	defer nappers.leave()
	g.looking.Lock()
	left, ready := g.beginNap(limit)
	g.looking.Unlock()
	if left == 0 {
		return ready
	}
	slept := g.set.Nap(left)
	g.looking.Lock()
	g.woken = slept
	g.looking.Unlock()
	g.mu.Lock()
	g.napping, g.watching, g.until = false, false, never
	if g.autos > 0 {
		g.until = g.clock() + int64(stepBack) // at the latest
	}
	if g.armed.Load() > 0 {
		g.kick()
	}
	g.mu.Unlock()
	return slept
}

// beginNap prepares a nap and returns how long it may last. 0 means that there is none, and ready then
// says that there may be something to do. The caller holds looking: a turn of the goroutine that is
// not over would make it sleep on the set, too, and nobody would know of that.
func (g *Group) beginNap(limit time.Duration) (left time.Duration, ready bool) {
	if g.settle() {
		return 0, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.napping || g.armed.Load() > 0 {
		return 0, false
	}
	now, t := g.clock(), g.agenda.first()
	if t <= now || limit <= 0 {
		return 0, true
	}
	if g.watching {
		g.kick() // the goroutine leaves the set to this call
	}
	if end := now + int64(limit); end > now { // else it does not end in this world
		t = min(t, end)
	}
	g.napping, g.watching, g.until = true, true, t
	return time.Duration(t - now), false
}

// Rouse ends a Nap that is under way, or the next one.
func (g *Group) Rouse() {
	g.mu.Lock()
	if !g.closed {
		g.set.Rouse()
	}
	g.mu.Unlock()
}

// Yield, Crowded and Shared are about the processor, of which one member knows for all.
func (g *Group) Yield() {
	if d := g.lead.Load(); d != nil {
		d.Yield()
	} else {
		runtime.Gosched()
	}
}

// Crowded is that of a Driver.
func (g *Group) Crowded() bool {
	d := g.lead.Load()
	return d != nil && d.Crowded()
}

// Shared is that of a Driver. A look would send something of stirred members, or may.
func (g *Group) Shared() bool {
	d := g.lead.Load()
	if d == nil || !d.Shared() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.stirred) == 0
}

// An agenda is a heap of members by deadline.
type agenda []*member

// first is the earliest deadline, never if there is none.
func (a agenda) first() int64 {
	if len(a) == 0 {
		return never
	}
	return a[0].when
}

// take removes and returns a member whose deadline has come, nil if there is none.
func (a *agenda) take(now int64) *member {
	if a.first() > now || len(*a) == 0 {
		return nil
	}
	m := (*a)[0]
	a.remove(m)
	return m
}

func (a *agenda) add(m *member) {
	m.at = len(*a)
	*a = append(*a, m)
	a.up(m.at)
}

// remove removes a member, which has no deadline then.
func (a *agenda) remove(m *member) {
	h := *a
	i, last := m.at, len(h)-1
	h[i] = h[last]
	h[i].at = i
	h[last] = nil
	*a = h[:last]
	if i < last {
		a.down(i)
		a.up(i)
	}
	m.at, m.when = -1, never
}

func (a agenda) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if a[p].when <= a[i].when {
			return
		}
		a.swap(i, p)
		i = p
	}
}

func (a agenda) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(a) {
			return
		}
		if c+1 < len(a) && a[c+1].when < a[c].when {
			c++
		}
		if a[i].when <= a[c].when {
			return
		}
		a.swap(i, c)
		i = c
	}
}

func (a agenda) swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].at, a[j].at = i, j
}
