package plan

import (
	"strings"
	"testing"
)

// A fault that would strike nothing is an error that names it, and so are parts that lack.
func TestCheck(t *testing.T) {
	for want, change := range map[string]func(p *Plan){
		"0 planes":                       func(p *Plan) { p.Planes = 0 },
		`faults[0].kind is "explode"`:    func(p *Plan) { p.Faults[0].Kind = "explode" },
		`faults[1].host is "plane7"`:     func(p *Plan) { p.Faults[1].Host = "plane7" },
		`faults[0].other is "nobody"`:    func(p *Plan) { p.Faults[0].Other = "nobody" },
		`faults[2].await.by is "nobody"`: func(p *Plan) { p.Faults[2].Await.By = "nobody" },
	} {
		p := Draw(1)
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		change(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
