package cell

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headway-rl/headway/loop/trace"
)

// WordBytesMost is the most that a word may have.
const WordBytesMost = 256 << 10

// word is an event on its way to another process. The event and its facts are in the words of the log, with a checksum.
type word struct {
	Event   json.RawMessage `json:"event"`
	Age     int64           `json:"age_ns,omitempty"`
	Payload string          `json:"payload,omitempty"`
	Error   string          `json:"error,omitempty"`
	Down    bool            `json:"down,omitempty"`
	Fatal   bool            `json:"fatal,omitempty"`
	Hello   *Hello          `json:"hello,omitempty"`
	Load    json.RawMessage `json:"load,omitempty"`
	Ask     *Ask            `json:"ask,omitempty"`
}

// Word is the event as it is sent. Its time is not in it, since clocks differ: the age is.
func (ev *Event) Word() ([]byte, error) {
	line := trace.Event{Event: ev.Event, GenerateNS: ev.GenerateNS, EnvironmentNS: ev.EnvironmentNS, VersionTokens: ev.VersionTokens,
		Spans: ev.Spans, Resumed: ev.Resumed, StateLag: ev.StateLag, Origin: ev.Origin}
	line.Time, line.Made = 0, ev.ByVersion
	text := new(trace.Encoder).AppendEvent(nil, line)
	out, err := json.Marshal(word{Event: text[:len(text)-1], Age: ev.Age, Payload: ev.Payload, Error: ev.Error, Down: ev.Down, Fatal: ev.Fatal, Hello: ev.Hello, Load: ev.Load, Ask: ev.Ask})
	if err == nil && len(out) > WordBytesMost {
		err = fmt.Errorf("cell: event %d, %v, takes %d bytes, and a word may have %d", ev.Origin.Sequence, ev.Kind, len(out), WordBytesMost)
	}
	return out, err
}

// ParseWord reads what Word has written.
func ParseWord(text []byte) (*Event, error) {
	if len(text) > WordBytesMost {
		return nil, fmt.Errorf("cell: a word of %d bytes, and %d are allowed", len(text), WordBytesMost)
	}
	var w word
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, fmt.Errorf("cell: no word of a cell: %w", err)
	}
	line, err := trace.ParseEvent(w.Event)
	if err == nil && line.Origin.Cell == "" {
		err = errors.New("it names no cell")
	}
	if err != nil {
		return nil, fmt.Errorf("cell: no word of a cell: %w", err)
	}
	ev := &Event{Event: line.Event, Origin: line.Origin, Age: w.Age, Payload: w.Payload, Error: w.Error, Down: w.Down, Fatal: w.Fatal, Hello: w.Hello, Load: w.Load, Ask: w.Ask,
		Facts: Facts{GenerateNS: line.GenerateNS, EnvironmentNS: line.EnvironmentNS, ByVersion: line.Made, VersionTokens: line.VersionTokens,
			Spans: line.Spans, Resumed: line.Resumed, StateLag: line.StateLag}}
	ev.Made = nil
	return ev, nil
}
