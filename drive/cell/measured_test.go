package cell

import (
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// TestRunsOfVersions: what the policy did not sample breaks no run, a change of
// version and a resume do.
func TestRunsOfVersions(t *testing.T) {
	const n = loop.NoVersion
	for name, c := range map[string]struct {
		versions []loop.Version
		resumes  []port.ResumePoint
		want     int
	}{
		"one turn":                {[]loop.Version{n, 3, 3}, nil, 1},
		"three turns":             {[]loop.Version{n, 3, 3, n, n, 3, n, 3, 3}, nil, 1},
		"a switch in a turn":      {[]loop.Version{n, 3, 4, n, 4}, nil, 2},
		"a switch between turns":  {[]loop.Version{n, 3, n, 4, n, 3}, nil, 3},
		"resumed, one version":    {[]loop.Version{n, 3, 3, 3}, []port.ResumePoint{{At: 2, Version: 3}}, 2},
		"resumed between turns":   {[]loop.Version{n, 3, n, 3, n, 3}, []port.ResumePoint{{At: 3, Version: 3}}, 2},
		"resumed twice at once":   {[]loop.Version{n, 3, n, 4}, []port.ResumePoint{{At: 3, Version: 3}, {At: 3, Version: 4}}, 2},
		"resumed after the last":  {[]loop.Version{n, 3, 3, n}, []port.ResumePoint{{At: 4, Version: 5}}, 1},
		"resumed, another served": {[]loop.Version{n, 3, 5, 5, n, 5}, []port.ResumePoint{{At: 2, Version: 5}}, 2},
	} {
		s := port.Sample{Tokens: make([]int32, len(c.versions)), LossMask: make([]uint8, len(c.versions)), Versions: c.versions, Resumes: c.resumes}
		for i, v := range c.versions {
			if v != n {
				s.LossMask[i] = 1
			}
		}
		if got := measure(&s).Spans; got != c.want {
			t.Errorf("%s: %d runs of versions %v resumed at %v, want %d", name, got, c.versions, c.resumes, c.want)
		}
	}
}
