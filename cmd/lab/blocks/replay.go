package main

import "container/list"

// replay runs a trace through a cache of so many blocks and returns the share of prompt tokens found. A request finds the
// blocks from its start up to the first that is not there, and not its last token. All its whole blocks, and those of its
// output, are in the cache after it, its first blocks the most recently used.
func (t trace) replay(blocks int) float64 {
	recent := list.New() // of identifiers, the most recently used first
	there := map[uint64]*list.Element{}
	made := uint64(1) << 62 // names of blocks of outputs
	found, all := 0, 0
	for _, r := range t {
		whole := r.Hashes[:min(len(r.Hashes), r.Input/blockTokens)]
		hit := 0
		for hit < len(whole) && hit < (r.Input-1)/blockTokens && there[whole[hit]] != nil {
			hit++
		}
		found += hit * blockTokens
		all += r.Input
		used := append([]uint64(nil), whole...)
		for len(used) < (r.Input+r.Output-1)/blockTokens {
			made++
			used = append(used, made)
		}
		for i := len(used) - 1; i >= 0; i-- {
			if at := there[used[i]]; at != nil {
				recent.MoveToFront(at)
				continue
			}
			there[used[i]] = recent.PushFront(used[i])
		}
		for recent.Len() > blocks {
			oldest := recent.Back()
			delete(there, recent.Remove(oldest).(uint64))
		}
	}
	return float64(found) / float64(all)
}
