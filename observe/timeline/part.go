package timeline

import (
	"github.com/headway-rl/headway/loop"
)

// Attempt names a rollout attempt.
type Attempt struct {
	Group           loop.GroupID
	Sample, Attempt int32
}

// Part is a stretch of an attempt in which its environment was at work.
type Part struct {
	// Name says on what: sandbox_start, tool, verifier. Tool and Class, the limit or the failure that it met,
	// may be empty. Each has letters, digits, '-' and '_' alone; other characters are drawn as '_'.
	Name, Tool, Class string
	// FromNS and ToNS are nanoseconds since the run's start.
	FromNS, ToNS int64
}

// stretch is a length of time, in nanoseconds since the run's start.
type stretch struct{ from, to int64 }

// drawParts draws the parts of an attempt within its stay in a slot, or of an environment whose time alone
// is known a part of that length, and returns where they are.
func (d *Drawing) drawParts(pid, tid int, r rollout, from, environmentNS int64) (drawn []stretch) {
	var parts []Part
	if d.opt.Parts != nil {
		parts = d.opt.Parts(Attempt{r.group, r.sample, r.attempt})
	}
	if len(parts) == 0 && environmentNS > 0 {
		// It may lie between generations: only its sum is known, and drawn at the end.
		parts = []Part{{Name: "environment", FromNS: d.now - environmentNS, ToNS: d.now}}
	}
	for _, p := range parts {
		begin, end := max(p.FromNS, from, r.from), min(p.ToNS, d.now)
		if begin >= end {
			continue
		}
		drawn = append(drawn, stretch{begin, end})
		e := d.out
		e.span(pid, tid, "environment", begin, end)
		e.nameText(word(p.Name))
		if p.Tool != "" || p.Class != "" {
			e.args()
			if p.Tool != "" {
				e.argText("tool", word(p.Tool))
			}
			if p.Class != "" {
				e.argText("class", word(p.Class))
			}
		}
		e.close()
	}
	return drawn
}

// word replaces what a name in JSON could not have: tools are named by the policy.
func word(text string) string {
	clean := []byte(text)
	for i, c := range clean {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			clean[i] = '_'
		}
	}
	return string(clean)
}
