package metrics

import "github.com/headway-rl/headway/loop"

// loads counts a sync that begins with this load. Every sync brings the newest
// version; other engines of the same sync, and those that join, load what has
// been counted.
func (r *Recorder) loads(v loop.Version) {
	r.published(v)
	if last := len(r.syncsUpTo) - 1; v > 0 && v == r.syncsFrom+loop.Version(last) && r.syncsUpTo[last] == r.syncsUpTo[last-1] {
		r.syncsUpTo[last]++
		r.syncing = true
	}
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
// is more than StalenessMax versions back only those that are remembered.
func (r *Recorder) syncsBetween(start, v loop.Version) int64 {
	if start >= v {
		return 0
	}
	r.published(v)
	return int64(r.syncsUpTo[v-r.syncsFrom] - r.syncsUpTo[max(start-r.syncsFrom, 0)])
}
