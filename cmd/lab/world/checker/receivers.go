package checker

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// heardWithin is how long a request takes to its plane, while nothing is at fault between them.
const heardWithin = second / 10

// unsoundFor is for how long an engine may count as serving, by its plane's word, though a stage of it serves nothing: the
// plane looks once a second.
const unsoundFor = 3 * second / 2

// report is what a receiver said, and was told.
type report struct {
	call
	Instance string `json:"instance"`
	Engine   string `json:"engine"`
	Stage    int    `json:"stage"`
	Served   int64  `json:"served"`
	Loaded   int64  `json:"loaded"`
	// Waits are the seconds for which it waits for a command: 0 in a word that only says that it is there.
	Waits float64 `json:"wait_s"`
	told  struct {
		Seq     int64  `json:"seq"`
		Kind    string `json:"kind"`
		Version int64  `json:"version"`
		Offer   string `json:"offer"`
	}
}

// stageWord is what a status says of a stage of an engine.
type stageWord struct {
	Engine  string `json:"engine"`
	Stage   int    `json:"stage"`
	Version int64  `json:"version"`
	State   string `json:"state"`
}

// engineWord is what a status says of an engine.
type engineWord struct {
	Name   string      `json:"name"`
	State  string      `json:"state"`
	Stages []stageWord `json:"stages"`
}

func (t *testimony) receiver(at call, x *history.Exchange) {
	w := report{call: at}
	if json.Unmarshal(x.Request, &w) != nil {
		return
	}
	t.read(at, x.Response, &w.told)
	t.words = append(t.words, w)
}

// checkReceivers reports commands that a receiver cannot carry out, and planes that believe a stage more than it said.
func (c *check) checkReceivers() {
	for i := range c.said.words {
		w := &c.said.words[i]
		v := w.told.Version
		if w.told.Seq == 0 {
			continue
		}
		if v < 0 || v >= int64(len(c.log.versions)) && !c.lastOf(v) {
			c.fail(RuleReceiver, w.line, "%s was told to %s version %d, which the log does not have", w.host, w.told.Kind, v)
		}
		switch {
		case w.told.Kind == "load" && w.told.Offer == "":
			c.fail(RuleReceiver, w.line, "%s was told to load version %d, and not what its bytes are", w.host, v)
		case w.told.Kind == "switch" && w.Waits > 0 && w.Loaded != v:
			c.fail(RuleReceiver, w.line, "%s was told to serve version %d, and had said that it holds %d beside %d", w.host, v, w.Loaded, w.Served)
		}
	}
	last := map[string]*poll{} // of a plane, an engine and its stage: the first of the statuses that call it unsound and serving
	for i := range c.said.polls {
		p := &c.said.polls[i]
		for j := range p.word.Engines {
			e := &p.word.Engines[j]
			for _, s := range e.Stages {
				c.believed(p, s)
				c.unsound(last, p, e, s)
			}
		}
	}
}

// believed reports a stage that is said to serve a version, though its process has not said so.
func (c *check) believed(p *poll, s stageWord) {
	if s.Version < 0 {
		return
	}
	words := c.said.words
	newest := -1
	for i := range words {
		w := &words[i]
		if w.to != p.to || w.Engine != s.Engine || w.Stage != s.Stage || !w.whole || w.status != 200 {
			continue
		}
		heard := w.at
		if c.reachable(w.host, w.to, w.began, w.began+heardWithin) {
			heard = min(heard, w.began+heardWithin)
		}
		if heard < p.began && (newest < 0 || w.began > words[newest].began) {
			newest = i
		}
	}
	if newest < 0 {
		return
	}
	of := &words[newest]
	for i := range words {
		w := &words[i]
		if w.Engine != s.Engine || w.Stage != s.Stage || w.began > p.at {
			continue
		}
		if w.Instance == of.Instance && w.Served == s.Version || w.Instance != of.Instance && w.began >= of.began {
			return
		}
	}
	c.fail(RuleReceiver, p.line, "the status of %s says that stage %d of %s serves version %d, and its process, which %s heard by line %d, had not said so", p.to, s.Stage, s.Engine, s.Version, p.to, of.line)
}

// unsound reports an engine that goes on though a stage of it serves nothing. Before the first group none has work.
func (c *check) unsound(last map[string]*poll, p *poll, e *engineWord, s stageWord) {
	key := p.to + " " + s.Engine + " " + strconv.Itoa(s.Stage)
	if p.word.State != "running" || p.word.Ledger.Admitted == 0 || e.State != "serving" || s.State != "quarantined" && s.State != "lost" {
		delete(last, key)
		return
	}
	first := last[key]
	if first == nil || first.word.Writer.Epoch != p.word.Writer.Epoch {
		last[key] = p
		return
	}
	if p.began-first.at > unsoundFor && c.running(p.to, first.began, p.at) {
		c.fail(RuleReceiver, p.line, "the status of %s says that %s is serving, and has said since line %d that its stage %d is %s", p.to, e.Name, first.line, s.Stage, s.State)
		delete(last, key)
	}
}

// stops says whether a fault keeps hosts from hearing, answering or writing while it lasts.
func (o *outage) stops() bool {
	return slices.Contains([]string{"kill", "power", "flip", "dead", "freeze", "cut", "slow", "full", "drag", "drop", "lag"}, o.kind)
}

// reachable says whether no fault lies between two hosts, or stops one of them, from one time to another.
func (c *check) reachable(a, b string, from, to int64) bool {
	return !slices.ContainsFunc(c.outages, func(o outage) bool {
		return o.stops() && o.from < to && o.to > from && (o.host == a || o.host == b || o.other == a || o.other == b)
	})
}

// running says whether a plane could write and answer from one time to another. An append whose answer is lost by a reset waits for
// seconds.
func (c *check) running(plane string, from, to int64) bool {
	return !slices.ContainsFunc(c.outages, func(o outage) bool {
		if o.from > to || o.to+settles < from {
			return false
		}
		broker := strings.HasPrefix(o.host, "broker") || strings.HasPrefix(o.other, "broker")
		own := o.host == plane || o.other == plane
		return o.stops() && (broker || own) || o.kind == "reset" && broker && own
	})
}
