package metrics

import "github.com/headway-rl/headway/loop"

// loads counts a sync that begins with this load. Other engines of the same sync, and
// those that join, load what has been counted. A trainer that gives only some versions
// weights may be past the one that a sync brings.
func (r *Recorder) loads(v loop.Version) {
	r.published(v)
	at := int(v - r.syncsFrom)
	if v <= 0 || at < 1 || r.syncsUpTo[at] != r.syncsUpTo[at-1] {
		return
	}
	for i := at; i < len(r.syncsUpTo); i++ {
		r.syncsUpTo[i]++
	}
	r.syncing = true
}

// syncsKept is how many versions the count of syncs goes back to at least: as far as
// the histogram tells staleness apart.
const syncsKept = StalenessMax + 2

// published extends the count of syncs to a version, and forgets versions of long ago.
func (r *Recorder) published(v loop.Version) {
	for r.syncsFrom+loop.Version(len(r.syncsUpTo)) <= v {
		if len(r.syncsUpTo) == 2*syncsKept {
			r.syncsFrom += syncsKept
			r.syncsUpTo = append(r.syncsUpTo[:0], r.syncsUpTo[syncsKept:]...)
		}
		r.syncsUpTo = append(r.syncsUpTo, r.syncsUpTo[len(r.syncsUpTo)-1])
	}
}

// syncsBetween counts the syncs of versions after start and up to v; of a start that
// is more than StalenessMax versions back only those that are remembered. Of versions that
// have all been forgotten, as after a count that went back, it knows none.
func (r *Recorder) syncsBetween(start, v loop.Version) int64 {
	if start >= v || v < r.syncsFrom {
		return 0
	}
	r.published(v)
	return int64(r.syncsUpTo[v-r.syncsFrom] - r.syncsUpTo[max(start-r.syncsFrom, 0)])
}

// madeKept is how many versions are remembered by when they were made: a power of two, and more than
// a sync is ever late.
const madeKept = 64

// madeVersion is a version that no sync has brought yet; 0 is none.
type madeVersion struct {
	version loop.Version
	at      int64
}

// madeNow notes that the trainer made a version.
func (r *Recorder) madeNow(v loop.Version) {
	if v > 0 {
		r.madeAt[v&(madeKept-1)] = madeVersion{v, r.run.NowNS}
	}
}

// servedByAll counts a version that every engine serves now, by the time since it was made.
func (r *Recorder) servedByAll(v loop.Version) {
	if v <= 0 || r.madeAt[v&(madeKept-1)].version != v {
		return // made long ago, or before what was observed
	}
	r.window.brought++
	r.window.broughtNS += r.run.NowNS - r.madeAt[v&(madeKept-1)].at
	r.madeAt[v&(madeKept-1)] = madeVersion{}
}
