package jetstream

// ledger says of every message of the payload stream, from base on, whether it is needed:
// what decides what may be removed. Before base nothing is.
//
// A sequence that this process has not accounted for stops base, and with it every purge: a
// put of its own that was not answered yet, or one of another writer. A deposed writer can
// therefore never purge what its successor put.
type ledger struct {
	base    uint64
	entries []entry // of base and what follows; unknown ones too
	// live and garbage are the bytes of messages that are needed and that could be removed,
	// below those of garbage before base; reserved is what is on its way.
	live, garbage, below, reserved int64
	purged                         uint64 // everything before it has been removed
	step                           int64  // of garbage that makes a purge worth its while
}

type entry struct {
	size  uint32
	needs uint16 // payloads in the message that are needed
	state entryState
}

type entryState uint8

const (
	entryUnknown entryState = iota
	entryLive
	entryGarbage
	entryGone
)

func (l *ledger) used() int64 { return l.live + l.garbage + l.reserved }

// at returns the entry of a sequence, nil before base.
func (l *ledger) at(seq uint64) *entry {
	if seq < l.base {
		return nil
	}
	for uint64(len(l.entries)) <= seq-l.base {
		l.entries = append(l.entries, entry{})
	}
	return &l.entries[seq-l.base]
}

// note accounts for a message that is in the stream, and how many payloads in it are needed.
func (l *ledger) note(seq uint64, size, needs int) {
	e := l.at(seq)
	switch {
	case e == nil:
		return
	case e.state == entryLive: // of a reference that names it too
		e.needs += uint16(needs)
		return
	case e.state == entryGarbage && needs > 0:
		l.garbage -= int64(e.size)
	case e.state == entryGarbage || e.state == entryGone && needs == 0:
		return
	}
	e.size = uint32(size)
	if needs > 0 {
		e.state, e.needs = entryLive, uint16(needs)
		l.live += int64(size)
	} else {
		e.state = entryGarbage
		l.garbage += int64(size)
	}
}

// needs reports whether a message is needed.
func (l *ledger) needs(seq uint64) bool {
	return seq >= l.base && seq-l.base < uint64(len(l.entries)) && l.entries[seq-l.base].state == entryLive
}

// gap accounts for a sequence that has no message.
func (l *ledger) gap(seq uint64) {
	if e := l.at(seq); e != nil && e.state == entryUnknown {
		e.state = entryGone
	}
}

// doubt takes back that a message is accounted for.
func (l *ledger) doubt(seq uint64) {
	if e := l.at(seq); e != nil && e.state == entryLive {
		l.live -= int64(e.size)
		*e = entry{}
	}
}

// forget says that one payload of a message is no longer needed.
func (l *ledger) forget(seq uint64) {
	e := l.at(seq)
	if e == nil || e.state != entryLive {
		return
	}
	if e.needs--; e.needs == 0 {
		e.state = entryGarbage
		l.live -= int64(e.size)
		l.garbage += int64(e.size)
	}
}

// removed says that a message after base has been removed by itself.
func (l *ledger) removed(seq uint64) {
	if e := l.at(seq); e != nil && e.state == entryGarbage {
		e.state = entryGone
		l.garbage -= int64(e.size)
	}
}

// advance moves base past everything that is no longer needed.
func (l *ledger) advance() {
	n := 0
	for n < len(l.entries) && (l.entries[n].state == entryGarbage || l.entries[n].state == entryGone) {
		if l.entries[n].state == entryGarbage {
			l.below += int64(l.entries[n].size)
		}
		n++
	}
	l.base += uint64(n)
	if n < len(l.entries) {
		// Within its capacity, so that a queue that moves on does not grow.
		l.entries = append(l.entries[:0], l.entries[n:]...)
	} else {
		l.entries = l.entries[:0]
	}
}

// due reports whether there is enough garbage for the reclaimer to look.
func (l *ledger) due() bool { return l.garbage >= l.step }

// unknown lists the sequences that are not accounted for.
func (l *ledger) unknown() []uint64 {
	var seqs []uint64
	for i, e := range l.entries {
		if e.state == entryUnknown {
			seqs = append(seqs, l.base+uint64(i))
		}
	}
	return seqs
}

// holes lists the garbage after base, which no purge reaches.
func (l *ledger) holes() []uint64 {
	var seqs []uint64
	for i, e := range l.entries {
		if e.state == entryGarbage {
			seqs = append(seqs, l.base+uint64(i))
		}
	}
	return seqs
}
