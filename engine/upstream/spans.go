package upstream

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
)

// addSpans adds what an event says of versions to what earlier ones said: it goes on where they
// ended, or begins again and takes their place.
func addSpans(known, more []Span) []Span {
	if len(more) == 0 {
		return known
	}
	if len(known) > 0 && more[0].Start < known[len(known)-1].End {
		known = known[:0]
	}
	return append(known, more...)
}

// resolveSpans turns the spans of a call into a version for each of its n sampled tokens. Some
// servers count from the first sampled token, some from the first of the prompt, which has prompt
// tokens: whichever adds up is meant, and where neither does, or both with different versions,
// that is an error. cut: the response was cut off, and the server may have sampled more than has
// arrived.
func resolveSpans(spans []Span, prompt, n int, cut bool, versionOf func(label string) (loop.Version, bool)) ([]loop.Version, error) {
	if err := contiguous(spans); err != nil {
		return nil, err
	}
	first, last := spans[0].Start, spans[len(spans)-1].End
	fits := func(end int) bool { return last == end || cut && last > end }
	var found []loop.Version
	for _, c := range []struct {
		offset int
		ok     bool
	}{
		{0, first == 0 && fits(n)},
		{prompt, (first == prompt || first == 0) && fits(prompt+n)},
	} {
		if !c.ok {
			continue
		}
		versions, err := versionsAt(spans, c.offset, n, versionOf)
		if err != nil {
			return nil, err
		}
		if found != nil && !equalVersions(found, versions) {
			return nil, fmt.Errorf("the versions of its tokens can be read in two ways: spans %v of %d tokens after %d of the prompt", spans, n, prompt)
		}
		found = versions
	}
	if found == nil {
		return nil, fmt.Errorf("the versions of its tokens do not add up: spans %v of %d tokens after %d of the prompt", spans, n, prompt)
	}
	return found, nil
}

// contiguous refuses spans with gaps, overlaps or nothing in them.
func contiguous(spans []Span) error {
	for i, s := range spans {
		if s.Start < 0 || s.Start >= s.End || i > 0 && s.Start != spans[i-1].End {
			return fmt.Errorf("the versions of its tokens have a gap or an overlap: spans %v", spans)
		}
	}
	return nil
}

// versionsAt reads spans that count the first of n tokens as offset.
func versionsAt(spans []Span, offset, n int, versionOf func(label string) (loop.Version, bool)) ([]loop.Version, error) {
	versions := make([]loop.Version, 0, n)
	for _, s := range spans {
		from, to := max(s.Start-offset, 0), min(s.End-offset, n)
		if from >= to {
			continue
		}
		version, ok := versionOf(s.Label)
		if !ok {
			return nil, fmt.Errorf("%w: %.200q sampled %d of its tokens", errUnknownLabel, s.Label, to-from)
		}
		for range to - from {
			versions = append(versions, version)
		}
	}
	if len(versions) != n {
		return nil, fmt.Errorf("the versions of its tokens do not add up: spans %v of %d tokens", spans, n)
	}
	return versions, nil
}

func equalVersions(a, b []loop.Version) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}
