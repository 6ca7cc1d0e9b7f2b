package trace

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// Format is the version of the format; a reader refuses others.
const Format = 2

// Notes with a meaning of their own. Others are for people and tools.
const (
	// NoteHeader is the first line; its data is a Header.
	NoteHeader = "header"
	// NoteEnd is the last line of a complete trace.
	NoteEnd = "end"
	// NotePrediction is what was expected before the first step.
	NotePrediction = "prediction"
	// NoteService holds an engine's decode times since the last such note; its data is a Service.
	NoteService = "service"
	// NoteStep holds what the trainer said of a step; its data is a Step.
	NoteStep = "step"
	// NoteDiscarded, behind the event of a score, says that it counts for nothing: it came after the loop had given the
	// attempt up. Its data names the attempt.
	NoteDiscarded = "discarded"
)

// Header begins a trace.
type Header struct {
	Format  int    `json:"format"`
	Program string `json:"program"`
	// Source is "live" or "simulation".
	Source string `json:"source"`
	Seed   uint64 `json:"seed"`
	// Loop holds the rules, Config the resolved config as text.
	Loop   loop.Config `json:"loop"`
	Config string      `json:"config"`
	// Warmup is the version at which the run's measured window begins; 0 measures from the start.
	Warmup loop.Version `json:"warmup,omitempty"`
}

// Service holds how long an engine's decode steps took, by how many slots were
// decoding and whether the trainer was busy.
type Service struct {
	Engine int           `json:"engine"`
	Cells  []ServiceCell `json:"cells"`
}

// ServiceCell counts decode steps of one kind.
type ServiceCell struct {
	// Active is the number of decoding slots, TrainerBusy whether a train step was running.
	Active      int  `json:"active"`
	TrainerBusy bool `json:"trainer_busy,omitempty"`
	// Steps is how many decode steps there were, NS their duration in all.
	Steps int64 `json:"steps"`
	NS    int64 `json:"ns"`
}

// Step is what a train step took.
type Step struct {
	Lease  loop.LeaseID `json:"lease"`
	Tokens int          `json:"tokens"`
	// NS is the time from the lease to the published version.
	NS int64 `json:"ns"`
}

// Record is one line of a trace: exactly one of Event, Action and Note is set.
type Record struct {
	// Line counts from 1. Seq is the number of the event, or of the event an action follows from.
	Line int
	Seq  int64
	// Event with what the driver measured of it.
	Event  *Event
	Action *loop.Action
	Note   string
	Data   json.RawMessage
}

// Event is an event of the loop with measurements the loop does not see.
type Event struct {
	loop.Event
	// GenerateNS and EnvironmentNS split a scored rollout's time, in nanoseconds.
	GenerateNS, EnvironmentNS int64
	// VersionTokens is the sum over a scored response's tokens of the version that sampled them.
	VersionTokens int64
	// Spans is how many spans a scored response is made of, 0 where that is not known. Resumed says
	// that it was interrupted, StateLag by how many versions its environment's state lagged then.
	Spans    int
	Resumed  bool
	StateLag int64
	// Origin is which word of which cell the event is, the zero value for one of the writer's process.
	Origin Origin
}

// Origin places an event among those that cells have said. A cell repeats what the log does not show, and the writer takes
// each once, in the order of its cell.
type Origin struct {
	// Cell is the name of the cell, empty for the one in the writer's process, which ends with it.
	Cell string `json:"cell"`
	// Incarnation counts the processes that the cell has been. Sequence counts what this one has said, from 1.
	Incarnation int64 `json:"incarnation"`
	Sequence    int64 `json:"sequence"`
}

// Precedes reports whether the same cell has said something before something else.
func (o Origin) Precedes(other Origin) bool {
	return o.Incarnation < other.Incarnation || o.Incarnation == other.Incarnation && o.Sequence < other.Sequence
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encoder renders lines. It keeps the checksum from line to line; its zero value
// begins a trace.
type Encoder struct{ at Position }

// Position is a place between two lines of a trace: where a Reader begins in the
// middle, or an Encoder goes on. Its zero value is before the first line.
type Position struct {
	// Line is how many lines are before it, Seq the number of the last event of those, 0 for none.
	Line int64 `json:"line"`
	Seq  int64 `json:"seq"`
	// Sum is the checksum that the last of those lines ends with.
	Sum uint32 `json:"sum"`
}

// Resume returns an encoder that goes on at a position.
func Resume(at Position) *Encoder { return &Encoder{at} }

// Position returns where the next line will be.
func (e *Encoder) Position() Position { return e.at }

// Seq returns the number of the last event, 0 before the first.
func (e *Encoder) Seq() int64 { return e.at.Seq }

// AppendEvent appends the line of an event to dst and returns it; it gives the event the next number.
func (e *Encoder) AppendEvent(dst []byte, ev Event) []byte {
	e.at.Seq++
	from := len(dst)
	dst = append(dst, `{"n":`...)
	dst = strconv.AppendInt(dst, e.at.Seq, 10)
	dst = append(dst, `,"t":`...)
	dst = strconv.AppendInt(dst, ev.Time, 10)
	dst = append(dst, `,"e":"`...)
	dst = append(dst, ev.Kind.String()...)
	dst = append(dst, '"')
	dst = field(dst, "engine", int64(ev.Engine))
	dst = field(dst, "slot", int64(ev.Slot))
	dst = field(dst, "g", int64(ev.Group))
	dst = field(dst, "s", int64(ev.Sample))
	dst = field(dst, "attempt", int64(ev.Attempt))
	dst = field(dst, "tokens", int64(ev.Tokens))
	dst = made(dst, ev.Made)
	dst = field(dst, "lease", int64(ev.Lease))
	dst = field(dst, "v", int64(ev.Version))
	dst = real(dst, "reward", ev.Reward)
	dst = real(dst, "drift", ev.Drift)
	dst = text(dst, "verdict", ev.Mark.String())
	dst = text(dst, "reason", ev.Reason.String())
	if ev.Kind == loop.SettingRequested || ev.Setting != 0 {
		dst = text(dst, "setting", ev.Setting.String())
	}
	dst = field(dst, "gen_ns", ev.GenerateNS)
	dst = field(dst, "env_ns", ev.EnvironmentNS)
	dst = field(dst, "v_tokens", ev.VersionTokens)
	dst = field(dst, "spans", int64(ev.Spans))
	if ev.Resumed {
		dst = append(dst, `,"resumed":true`...)
	}
	dst = field(dst, "state_lag", ev.StateLag)
	if o := &ev.Origin; o.Cell != "" {
		dst = text(dst, "cell", o.Cell)
		dst = field(dst, "inc", o.Incarnation)
		dst = field(dst, "q", o.Sequence)
	}
	return e.close(dst, from)
}

// AppendAction appends the line of an action that follows from event seq.
func (e *Encoder) AppendAction(dst []byte, seq int64, a loop.Action) []byte {
	from := len(dst)
	dst = append(dst, `{"n":`...)
	dst = strconv.AppendInt(dst, seq, 10)
	dst = append(dst, `,"a":"`...)
	dst = append(dst, a.Kind.String()...)
	dst = append(dst, '"')
	dst = field(dst, "engine", int64(a.Engine))
	dst = field(dst, "slot", int64(a.Slot))
	dst = field(dst, "g", int64(a.Group))
	dst = field(dst, "s", int64(a.Sample))
	dst = field(dst, "attempt", int64(a.Attempt))
	dst = field(dst, "count", int64(a.Count))
	dst = field(dst, "lease", int64(a.Lease))
	dst = field(dst, "v", int64(a.Version))
	dst = field(dst, "start_v", int64(a.StartVersion))
	dst = field(dst, "ready_v", int64(a.ReadyVersion))
	dst = field(dst, "prompt", a.Prompt)
	dst = field(dst, "level", int64(a.Level))
	dst = text(dst, "end", a.End.String())
	dst = text(dst, "reason", a.Reason.String())
	if a.Kind == loop.SettingChanged || a.Control == loop.ControlUnreachable || a.Setting != 0 {
		dst = text(dst, "setting", a.Setting.String())
	}
	dst = text(dst, "control", a.Control.String())
	dst = wide(dst, "value", a.Value)
	return e.close(dst, from)
}

// AppendNote appends a note; data is marshalled as JSON. A name is a word of
// lower-case letters, digits and underscores.
func (e *Encoder) AppendNote(dst []byte, name string, data any) ([]byte, error) {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return dst, fmt.Errorf("trace: %q is no name of a note: use lower-case letters, digits and underscores", name)
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return dst, fmt.Errorf("trace: note %s: %w", name, err)
	}
	from := len(dst)
	dst = append(dst, `{"n":`...)
	dst = strconv.AppendInt(dst, e.at.Seq, 10)
	dst = text(dst, "note", name)
	dst = append(dst, `,"data":`...)
	dst = append(dst, raw...)
	return e.close(dst, from), nil
}

// close ends the line that began at from with its checksum.
func (e *Encoder) close(dst []byte, from int) []byte {
	e.at.Sum = crc32.Update(e.at.Sum, castagnoli, dst[from:])
	e.at.Line++
	return appendChecksum(dst, e.at.Sum)
}

// appendChecksum appends what a line ends with; there is one way to write it.
func appendChecksum(dst []byte, sum uint32) []byte {
	dst = append(dst, crcKey...)
	const digits = "0123456789abcdef"
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[sum>>shift&15])
	}
	return append(dst, "\"}\n"...)
}

const crcKey = `,"crc":"`

// crcTail is how long the end of a line is that holds the checksum, without the newline.
const crcTail = len(crcKey) + 8 + len(`"}`)

func field(dst []byte, key string, v int64) []byte {
	if v == 0 {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, key...)
	dst = append(dst, '"', ':')
	return strconv.AppendInt(dst, v, 10)
}

// made appends tokens by version, unless there are none: version, tokens, version, tokens.
func made(dst []byte, tokens []loop.VersionTokens) []byte {
	for i, t := range tokens {
		if i == 0 {
			dst = append(dst, `,"made":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(t.Version), 10)
		dst = append(dst, ',')
		dst = strconv.AppendInt(dst, t.Tokens, 10)
	}
	if len(tokens) > 0 {
		dst = append(dst, ']')
	}
	return dst
}

// real appends a number unless it is 0. JSON has no number that is none, and the
// loop treats all of those alike: they are a word.
func real(dst []byte, key string, v float32) []byte {
	if v == 0 {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, key...)
	dst = append(dst, '"', ':')
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, noNumber...)
	}
	return strconv.AppendFloat(dst, float64(v), 'g', -1, 32)
}

// wide appends a finite number of 64 bits unless it is 0.
func wide(dst []byte, key string, v float64) []byte {
	if v == 0 {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, key...)
	dst = append(dst, '"', ':')
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}

// noNumber stands for a number that is not finite.
const noNumber = `"none"`

func text(dst []byte, key, v string) []byte {
	if v == "" {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, key...)
	dst = append(dst, '"', ':', '"')
	dst = append(dst, v...)
	return append(dst, '"')
}
