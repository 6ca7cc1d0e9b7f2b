package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// kinds are those of faults.
var kinds = []string{Abort, Clock, Cut, Deaf, Double, Drag, Drop, Flip, Freeze, Full, Kill, Lag, Mute, Power, Reset, Rot, Slow, Stop, Twin}

// Check says as an error what no world could be made of: parts that lack, and faults that would strike nothing.
func (p Plan) Check() error {
	if p.Steps <= 0 || p.Planes <= 0 || len(p.Engines) == 0 || p.Workers <= 0 {
		return fmt.Errorf("it has %d steps, %d planes, %d engines and %d workers, want at least one of each", p.Steps, p.Planes, len(p.Engines), p.Workers)
	}
	if err := p.checkCells(); err != nil {
		return err
	}
	hosts := p.hosts()
	names := slices.Concat(slices.Collect(maps.Values(hosts))...)
	slices.Sort(names)
	roles := slices.Sorted(maps.Keys(hosts))
	for i, f := range p.Faults {
		for _, field := range []struct {
			name, value string
			allowed     []string
			optional    bool
		}{
			{"kind", f.Kind, kinds, false},
			{"host", f.Host, names, false},
			{"other", f.Other, names, true},
			{"await.by", f.Await.By, slices.Concat(roles, names, []string{"observer"}), true},
		} {
			if !slices.Contains(field.allowed, field.value) && !(field.optional && field.value == "") {
				return fmt.Errorf("faults[%d].%s is %q, want one of %s", i, field.name, field.value, strings.Join(field.allowed, ", "))
			}
		}
	}
	return nil
}
