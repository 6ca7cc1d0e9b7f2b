package episode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"github.com/headway-rl/headway/env/sandbox"
)

// ErrOtherwise is wrapped by the error of an episode that was played before ([Options.Earlier]), and whose world answers
// otherwise this time. The policy's later messages were about what is not there now.
var ErrOtherwise = errors.New("the world answers otherwise than before the restart")

// Step is the world's answer to a message of the policy. The first step of an episode is before any message.
type Step struct {
	// Task is the id of the task, in the first step alone.
	Task string `json:"task,omitempty"`
	// Heard are the messages that the world added to the chat.
	Heard []json.RawMessage `json:"heard,omitempty"`
}

// heard notes a step that is new. It holds one that was played before a restart against what was noted then, and goes on with
// that, as the policy saw it.
func (p *play) heard(s Step) ([]json.RawMessage, error) {
	if len(p.earlier) == 0 {
		if p.o.Note != nil {
			p.o.Note(s)
		}
		return s.Heard, nil
	}
	was := p.earlier[0]
	p.earlier = p.earlier[1:]
	switch {
	case s.Task != was.Task:
		return nil, p.otherwise(fmt.Sprintf("it was played at task %s", brief(was.Task)))
	case !alike(s.Heard, was.Heard):
		return nil, p.otherwise("an answer has changed")
	}
	return was.Heard, nil
}

// failed is a failure of the world. One that comes while it is played again ends the attempt with the restart.
func (p *play) failed(ctx context.Context, op string, err error) error {
	switch {
	case len(p.earlier) > 0 && ctx.Err() == nil:
		return p.otherwise(err.Error())
	case sandbox.ClassOf(err) == "":
		return sandbox.Fail(WorldFailed, op, "", "%w", err)
	}
	return err
}

func (p *play) otherwise(why string) error {
	return fmt.Errorf("%w, in turn %d of %d: %s", ErrOtherwise, p.out.Turns, len(p.o.Earlier), why)
}

// passing is what two runs of one command say differently though they do the same: times, durations and addresses.
var passing = regexp.MustCompile(`\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?( ?(Z|[+-]\d{2}:?\d{2}))?\b` +
	`|\b((Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ 0-9]?\d \d{2}:\d{2}(:\d{2})?( [A-Z]{3,4})?( \d{4})?\b` +
	`|\b\d{1,2}:\d{2}:\d{2}([.,]\d+)?\b` +
	`|\b\d+(\.\d+)?\s?(ns|µs|us|ms|s|secs?|seconds?|minutes?)\b` +
	`|\bat 0x[0-9a-f]{4,}\b`)

// alike reports whether two answers are the same, up to what passes.
func alike(a, b []json.RawMessage) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, err := lasting(a[i])
		y, err2 := lasting(b[i])
		if err != nil || err2 != nil || !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

// lasting is a JSON value whose texts do not have what passes.
func lasting(raw json.RawMessage) (v any, err error) {
	numbers := json.NewDecoder(bytes.NewReader(raw))
	numbers.UseNumber()
	err = numbers.Decode(&v)
	return without(v), err
}

// without is a value whose texts do not have what passes.
func without(v any) any {
	switch v := v.(type) {
	case string:
		return passing.ReplaceAllString(v, "~")
	case []any:
		for i := range v {
			v[i] = without(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = without(v[key])
		}
	}
	return v
}
