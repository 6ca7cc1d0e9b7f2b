package cell

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// Format is the form of events and of hellos. Control plane and cells need the same one, and the same form of the log.
const Format = 1

// Lease is how long a process of a cell may be silent. Then its writer takes it for lost.
const Lease = 15 * time.Second

// Hello is what a process of a cell says of itself, in its first event.
type Hello struct {
	// Build names the program. Another build fits as long as both formats are the same.
	Build  string `json:"build"`
	Format int    `json:"format"`
	// Trace is the format of the log that the cell reads.
	Trace int `json:"trace"`
	// Run is the sum of the log's header, Rules that of the rules in the cell's document.
	Run   string `json:"run"`
	Rules string `json:"rules"`
	// Engines are those of the cell, in the order of their indices.
	Engines []EngineHello `json:"engines"`
}

// EngineHello is an engine of a cell.
type EngineHello struct {
	// Engine is its index in the run's list.
	Engine int32  `json:"engine"`
	Name   string `json:"name"`
	Slots  int    `json:"slots"`
}

// NewHello returns what a process of this build says of the cell that follows the log with a header. Rules are those of the
// process's own document, and engines those of the cell, nil where one is another cell's.
func NewHello(build string, header trace.Header, rules loop.Config, engines []EngineHello) Hello {
	slices.SortFunc(engines, func(a, b EngineHello) int { return cmp.Compare(a.Engine, b.Engine) })
	return Hello{Build: build, Format: Format, Trace: trace.Format, Run: sum(header), Rules: sum(rules.WithDefaults()), Engines: engines}
}

// sum is a short name of a value.
func sum(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // values of a document and of its rules have a form
		return ""
	}
	digest := sha256.Sum256(text)
	return fmt.Sprintf("%x", digest[:8])
}

// Differs says what of a hello does not fit what the control plane has, and what to do. It is empty where all fits.
func (h *Hello) Differs(want *Hello) string {
	switch {
	case h.Format != want.Format:
		return fmt.Sprintf("it is the build %q with events of format %d, and the control plane %q has format %d: start both from one release", h.Build, h.Format, want.Build, want.Format)
	case h.Trace != want.Trace:
		return fmt.Sprintf("it is the build %q, which reads logs of format %d, and the control plane %q writes format %d: start both from one release", h.Build, h.Trace, want.Build, want.Trace)
	case h.Run != want.Run:
		return fmt.Sprintf("it follows the log of another run (header %s, and this run's is %s): see which run and which NATS servers its document names", h.Run, want.Run)
	case h.Rules != want.Rules:
		return fmt.Sprintf("its document has other rules (%s, and the run's are %s): give it the document that the run began with", h.Rules, want.Rules)
	case !slices.Equal(h.Engines, want.Engines):
		return fmt.Sprintf("it has the engines %s, and the control plane's document gives it %s: give both the same document", enginesText(h.Engines), enginesText(want.Engines))
	}
	return ""
}

func enginesText(engines []EngineHello) string {
	words := make([]string, len(engines))
	for i, e := range engines {
		words[i] = fmt.Sprintf("%d (%s, %d slots)", e.Engine, e.Name, e.Slots)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// hello is the first event of a process.
func (c *Cell) hello(h Hello) Event {
	ev := Event{Event: loop.Event{Kind: loop.EngineJoined}, Hello: &h}
	if len(h.Engines) > 0 {
		ev.Engine = h.Engines[0].Engine
	}
	if c.opt.Load != nil {
		ev.Load = c.opt.Load()
	}
	return ev
}

// Hello says what the process is. It is the cell's first event, and is answered in the log: the cell's engines join, and
// the cell executes what follows.
func (c *Cell) Hello(h Hello) {
	ev := c.hello(h)
	ev.Time = c.opt.Clock()
	c.outbox.say(&ev)
}

// Renewal is the hello once more. A writer that has taken it takes from that alone that the process lives, and its load.
func (c *Cell) Renewal(h Hello) Event {
	ev := c.hello(h)
	ev.Origin = trace.Origin{Cell: c.opt.Name, Incarnation: c.opt.Incarnation, Sequence: 1}
	return ev
}

// Replaced tells a process of a cell that a newer one has taken its place.
func Replaced(cell string, incarnation, newest int64) string {
	return fmt.Sprintf("cell %s: this process, incarnation %d, is replaced by incarnation %d, and stops: leave it stopped or end the other first, for one process at a time has the name %s",
		cell, incarnation, newest, cell)
}

// Refusal is why an event of a cell was not taken.
type Refusal struct {
	// Want is the sequence from which on the cell is to say its events again, as some are missing. With 0 the process is to
	// end, because its event does not fit.
	Want int64  `json:"want,omitempty"`
	Why  string `json:"why"`
}

func (r *Refusal) Error() string { return r.Why }
