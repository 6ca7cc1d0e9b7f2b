package checker

import (
	"fmt"
	"testing"
)

// TestOutlived: a plane that another has deposed says so once it can know it, or nothing.
func TestOutlived(t *testing.T) {
	says := func(to string, epoch uint64, state string, at int64) *poll {
		p := &poll{call: call{to: to, began: at * second, at: at*second + 1}}
		p.word.State, p.word.Writer.Epoch = state, epoch
		return p
	}
	fault := func(kind string, from, to int64) outage {
		return outage{span{from * second, to * second}, "plane1", kind, ""}
	}
	for name, test := range map[string]struct {
		polls   []*poll
		outages []outage
		broken  int
	}{
		"one after the other":     {[]*poll{says("plane1", 1, "running", 1), says("plane0", 2, "running", 5), says("plane1", 3, "running", 40)}, nil, 0},
		"soon":                    {[]*poll{says("plane1", 1, "running", 1), says("plane0", 2, "running", 5), says("plane1", 1, "running", 19)}, nil, 0},
		"for ever":                {[]*poll{says("plane1", 1, "running", 1), says("plane0", 2, "running", 5), says("plane1", 1, "running", 21)}, nil, 1},
		"behind a fault":          {[]*poll{says("plane1", 1, "running", 1), says("plane0", 2, "running", 5), says("plane1", 1, "running", 60)}, []outage{fault("cut", 2, 33)}, 1},
		"just behind a fault":     {[]*poll{says("plane1", 1, "running", 1), says("plane0", 2, "running", 5), says("plane1", 1, "running", 58)}, []outage{fault("cut", 2, 33)}, 0},
		"it ends":                 {[]*poll{says("plane1", 1, "running", 1), says("plane0", 2, "running", 5), says("plane1", 1, "draining", 90)}, nil, 0},
		"its successor has ended": {[]*poll{says("plane0", 2, "running", 5), says("plane2", 3, "running", 7), says("plane1", 1, "running", 50)}, nil, 2},
	} {
		c := &check{count: map[string]int{}, outages: test.outages}
		if c.outlived(test.polls); len(c.found) != test.broken {
			t.Errorf("%s: found %s, want %d", name, fmt.Sprint(c.found), test.broken)
		}
	}
}
