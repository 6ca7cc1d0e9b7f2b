package plan

import (
	"slices"
	"strings"
	"testing"
)

// Cells that have engines are hosts. They need a broker, players, and engines without receivers.
func TestCells(t *testing.T) {
	plan := func() Plan {
		return Plan{
			Steps: 1, Planes: 1, Workers: 1, Receivers: 1, Engines: []Engine{{}, {Cell: 2}, {Cell: 2}, {}}, Chat: &Chat{Players: 1},
			Faults: []Fault{{Kind: Kill, Host: "cell1"}, {Kind: Twin, Host: "cell1", Await: Await{By: "cell"}}},
		}
	}
	p := plan()
	if err := p.Check(); err != nil || !slices.Equal(p.Cells(), []int{2}) {
		t.Errorf("%v, %v", p.Cells(), err)
	}
	for want, change := range map[string]func(p *Plan){
		"a broker of their own": func(p *Plan) { p.Embedded = true },
		"2 places where":        func(p *Plan) { p.Chat, p.Workers = nil, 1 },
		"engine1 is of cell 2":  func(p *Plan) { p.Receivers = 2 },
		"engine0 is of cell -1": func(p *Plan) { p.Engines[0].Cell = -1 },
		`faults[0].host is "ce`: func(p *Plan) { p.Engines[1].Cell, p.Engines[2].Cell = 1, 1 },
	} {
		p := plan()
		change(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Workers claim where rollouts play that are not a cell's own players'.
func TestHomes(t *testing.T) {
	own, cells, players := Engine{}, []Engine{{Cell: 2}, {Cell: 1}}, &Chat{Players: 1}
	for _, test := range []struct {
		engines []Engine
		chat    *Chat
		want    []string
	}{
		{[]Engine{own}, nil, []string{""}},
		{[]Engine{own}, players, []string{""}},
		{append(cells, own), nil, []string{"", "cell0", "cell1"}},
		{append(cells, own), players, []string{""}},
		{cells, &Chat{}, []string{"cell0", "cell1"}},
		{cells, players, nil},
	} {
		if got := (Plan{Engines: test.engines, Chat: test.chat}).Homes(); !slices.Equal(got, test.want) {
			t.Errorf("%+v, %+v: %q, want %q", test.engines, test.chat, got, test.want)
		}
	}
}
