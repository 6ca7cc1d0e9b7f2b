package verifier

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/env/sandbox"
)

// Bounds of what comes with a reward.
const (
	stepsMax   = 10_000
	metricsMax = 256
	nameMax    = 128
	noteMax    = 1000
)

// checked is the verdict where it is one, and a failure where it is none.
func (v Verdict) checked(within [2]float64) (Verdict, error) {
	if err := v.check(within); err != nil {
		return Verdict{}, sandbox.Fail(sandbox.VerifierProtocol, "verify", "", "%w", err)
	}
	v.Note = clip(v.Note, noteMax)
	return v, nil
}

func (v Verdict) check(within [2]float64) error {
	if !finite(v.Reward) || v.Reward < within[0] || v.Reward > within[1] {
		return fmt.Errorf("the reward is %v, and must be a number from %v to %v", v.Reward, within[0], within[1])
	}
	if len(v.Steps) > stepsMax {
		return fmt.Errorf("there are rewards of %d steps, more than %d", len(v.Steps), stepsMax)
	}
	for i, step := range v.Steps {
		if !finite(step) {
			return fmt.Errorf("the reward of step %d is %v, which is no number that can be trained on", i, step)
		}
	}
	if len(v.Metrics) > metricsMax {
		return fmt.Errorf("there are %d metrics, more than %d", len(v.Metrics), metricsMax)
	}
	for name, value := range v.Metrics {
		if !isMetric(name, value) {
			return fmt.Errorf("the metric %q is %v: it must be a finite number, with a name of at most %d bytes", clip(name, nameMax), value, nameMax)
		}
	}
	if v.Limit != "" && v.Limit != Tampered && v.Limit != Raised && !v.Limit.Kind().Limit {
		return fmt.Errorf("the limit %q is none that a sandbox has", v.Limit)
	}
	return nil
}

// isMetric reports whether a number may be kept under a name.
func isMetric(name string, value float64) bool {
	return finite(value) && name != "" && len(name) <= nameMax
}

// finite reports whether a number can be added up and trained on.
func finite(x float64) bool { return math.Abs(x) <= rewardMax }

// clip is the valid beginning of a text, at most so many bytes of it.
func clip(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// request is what programs and servers of the user's are asked, one JSON object.
type request struct {
	ID        string            `json:"id"`
	Rollout   string            `json:"rollout"`
	Response  string            `json:"response"`
	Truncated bool              `json:"truncated,omitempty"`
	Messages  []json.RawMessage `json:"messages"`
	Answer    json.RawMessage   `json:"answer"`
	Task      taskJSON          `json:"task"`
}

type taskJSON struct {
	ID     string                     `json:"id"`
	Level  int                        `json:"level,omitempty"`
	Fields map[string]json.RawMessage `json:"fields,omitempty"`
}

func (c Case) request(id string) ([]byte, error) {
	r := request{ID: id, Rollout: c.Rollout, Response: c.Response, Truncated: c.Truncated, Messages: c.Messages, Answer: json.RawMessage("null")}
	if c.Task != nil {
		r.Task = taskJSON{c.Task.ID, c.Task.Level, c.Task.Fields}
		if c.Task.Answer != nil {
			r.Answer = c.Task.Answer
		}
	}
	if r.Messages == nil {
		r.Messages = []json.RawMessage{}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, sandbox.Fail(sandbox.Refused, "verify", "", "the case cannot be written as JSON: %w", err)
	}
	return text, nil
}

// answered is what they answer.
type answered struct {
	id      string
	verdict Verdict
	// rewarded: there is a reward; without one that of the steps is their sum. judgedExact: exact is said.
	rewarded, judgedExact bool
	// refused is why there is no verdict, in the words of who judges.
	refused string
}

// parseAnswer reads {"id","reward","exact","steps","metrics","note"} or {"id","error"}. Names count
// with their case, no name may come twice, and others are ignored.
func parseAnswer(text []byte) (a answered, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return a, notAnObject(text, err)
	}
	seen := map[string]bool{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return a, notAnObject(text, err)
		}
		name := key.(string) // a key of an object is nothing else
		if seen[name] {
			return a, fmt.Errorf("%q is there twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return a, notAnObject(text, err)
		}
		if err := a.set(name, value); err != nil {
			return a, fmt.Errorf("%q: %w", name, err)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return a, notAnObject(text, err)
	}
	if decoder.More() {
		return a, errors.New("there is more behind the object: one object is one answer")
	}
	return a, nil
}

func notAnObject(text []byte, err error) error {
	hint := ""
	for _, word := range []string{"NaN", "Infinity"} {
		if bytes.Contains(text, []byte(word)) {
			hint = " (" + word + " is no JSON and no reward)"
		}
	}
	if err == nil {
		err = errors.New("it is something else")
	}
	return fmt.Errorf("one JSON object was expected%s: %w: %q", hint, err, clip(string(text), 200))
}

func (a *answered) set(name string, value json.RawMessage) (err error) {
	if string(value) == "null" && name != "reward" {
		return nil
	}
	switch name {
	case "id":
		err = json.Unmarshal(value, &a.id)
	case "reward":
		a.rewarded = true
		a.verdict.Reward, err = number(value)
	case "exact":
		a.judgedExact = true
		err = json.Unmarshal(value, &a.verdict.Exact)
	case "steps":
		var steps []json.RawMessage
		if err = json.Unmarshal(value, &steps); err != nil {
			return err
		}
		for i, step := range steps {
			x, err := number(step)
			if err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
			a.verdict.Steps = append(a.verdict.Steps, x)
		}
	case "metrics":
		err = json.Unmarshal(value, &a.verdict.Metrics)
	case "note":
		err = json.Unmarshal(value, &a.verdict.Note)
	case "error":
		if err = json.Unmarshal(value, &a.refused); err == nil && a.refused == "" {
			err = errors.New("it is empty: say why there is no verdict, or leave it out")
		}
	}
	return err
}

// number reads a JSON number; text, true and null are none.
func number(value json.RawMessage) (float64, error) {
	text := strings.TrimSpace(string(value))
	if text == "" || !strings.ContainsAny(text[:1], "-0123456789") {
		return 0, fmt.Errorf("%s is no number", clip(text, 80))
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is no number that can be trained on", clip(text, 80))
	}
	return x, nil
}

// finish makes the verdict of an answer, within the range.
func (a answered) finish(within [2]float64) (Verdict, error) {
	v := a.verdict
	if a.refused != "" {
		return Verdict{}, sandbox.Fail(sandbox.VerifierCrash, "verify", "", "who judges says: %s", clip(a.refused, noteMax))
	}
	if !a.rewarded {
		if len(v.Steps) == 0 {
			return Verdict{}, sandbox.Fail(sandbox.VerifierProtocol, "verify", "", `there is no "reward" in the answer, and no "steps" that would add up to one`)
		}
		for _, step := range v.Steps {
			v.Reward += step
		}
	}
	if !a.judgedExact {
		v.Exact = v.Reward == within[1]
	}
	return v.checked(within)
}
