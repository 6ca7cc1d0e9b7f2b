package hardware

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/spelling"
)

// suffixes are what names of published weights end in without changing a shape.
var suffixes = []string{"-instruct", "-base", "-chat", "-thinking", "-it", "-pt", "-fp8", "-bf16", "-nvfp4", "-hf", "-2507", "-0528", "-v0.1", "-v0.3"}

// canonical writes a name as presets do: lower case, no organisation, dashes.
func canonical(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	name = name[strings.LastIndex(name, "/")+1:]
	name = strings.NewReplacer("_", "-", " ", "-").Replace(name)
	for again := true; again; {
		again = false
		for _, suffix := range suffixes {
			if short, found := strings.CutSuffix(name, suffix); found && short != "" {
				name, again = short, true
			}
		}
	}
	return name
}

// lookup finds a name among known ones and other ways to write them, or says
// which are nearest.
func lookup(what, name string, known []string, others map[string]string) (int, error) {
	if strings.TrimSpace(name) == "" {
		return 0, fmt.Errorf("%s: no name given; %s", what, howToList)
	}
	wanted := canonical(name)
	if usual, found := others[wanted]; found {
		wanted = usual
	}
	if i := slices.Index(known, wanted); i >= 0 {
		return i, nil
	}
	if i := spelled(wanted, known, others); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("%s %q is not known; nearest: %s; %s", what, name, strings.Join(nearest(wanted, known, others), ", "), howToList)
}

// makers are what names begin with that say who made it, and no more.
var makers = []string{"nvidia", "dgx", "meta"}

// spelled finds the name that differs in dashes and in a maker's name alone, such as llama3.1-8b,
// meta-llama-3.1-8b or DGX-H100; −1 if there is none.
func spelled(wanted string, known []string, others map[string]string) int {
	plain := func(name string) string { return strings.ReplaceAll(name, "-", "") }
	bare := plain(wanted)
	for _, maker := range makers {
		bare = strings.TrimPrefix(bare, maker)
	}
	if i := slices.IndexFunc(known, func(name string) bool { return plain(name) == bare }); i >= 0 {
		return i
	}
	for _, other := range slices.Sorted(maps.Keys(others)) {
		if plain(other) == bare {
			return slices.Index(known, others[other])
		}
	}
	return -1
}

// nearest lists the known names that begin so, then those of least edit distance,
// three at most.
func nearest(wanted string, known []string, others map[string]string) []string {
	candidates := append(slices.Clone(known), slices.Sorted(maps.Keys(others))...)
	slices.SortStableFunc(candidates, func(a, b string) int {
		return cmp.Or(prefixed(b, wanted)-prefixed(a, wanted), spelling.Distance(wanted, a)-spelling.Distance(wanted, b))
	})
	least := spelling.Distance(wanted, candidates[0])
	var found []string
	for _, candidate := range candidates {
		if prefixed(candidate, wanted) == 0 && spelling.Distance(wanted, candidate) > least {
			break
		}
		if usual, other := others[candidate]; other {
			candidate = usual
		}
		if len(found) < 3 && !slices.Contains(found, candidate) {
			found = append(found, candidate)
		}
	}
	return found
}

// prefixed is 1 for a name that begins as wanted, 0 for another.
func prefixed(name, wanted string) int {
	if strings.HasPrefix(name, wanted) {
		return 1
	}
	return 0
}
