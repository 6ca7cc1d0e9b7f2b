package verifier

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strings"

	"github.com/headway-rl/headway/env/sandbox"
)

// exact compares with the task's answer: a text, a number, or a list any of which is right.
type exact struct {
	o       Options
	pattern *regexp.Regexp
}

func newExact(o Options) (Verifier, error) {
	e := &exact{o: o}
	switch o.Extract {
	case "", "last-line", "boxed":
	case "marker":
		if o.Marker == "" {
			return nil, fmt.Errorf("verifier: exact behind a marker needs one, such as ####")
		}
	case "pattern":
		var err error
		if e.pattern, err = regexp.Compile(o.Pattern); err != nil {
			return nil, fmt.Errorf("verifier: the pattern of exact: %w", err)
		}
		if e.pattern.NumSubexp() < 1 {
			return nil, fmt.Errorf("verifier: the pattern %q has no group: put the answer in parentheses", o.Pattern)
		}
	default:
		return nil, fmt.Errorf("verifier: exact extracts by %q: it must be last-line, marker, boxed or pattern, or left out for the whole response", o.Extract)
	}
	if !(o.Tolerance >= 0 && o.Tolerance < 1) {
		return nil, fmt.Errorf("verifier: a tolerance of %v: it must be from 0 to below 1, as a share of the answer", o.Tolerance)
	}
	return e, nil
}

// Verify implements Verifier.
func (e *exact) Verify(_ context.Context, c Case) (Verdict, error) {
	answers, err := answersOf(c)
	if err != nil {
		return Verdict{}, err
	}
	said, found := e.extract(c.Response)
	if !found {
		return Verdict{Reward: e.o.Range[0], Note: "the response has no answer where one is looked for: " + e.o.Extract}, nil
	}
	for _, answer := range answers {
		if e.equal(said, answer) {
			return Verdict{Reward: e.o.Range[1], Exact: true}, nil
		}
	}
	return Verdict{Reward: e.o.Range[0], Note: fmt.Sprintf("%q is not %q", clip(said, 200), clip(strings.Join(answers, " | "), 200))}, nil
}

// Close implements Verifier.
func (e *exact) Close() error { return nil }

func answersOf(c Case) ([]string, error) {
	none := func(format string, args ...any) ([]string, error) {
		return nil, sandbox.Fail(sandbox.BadTask, "verify", "", format, args...)
	}
	if c.Task == nil || len(c.Task.Answer) == 0 || string(c.Task.Answer) == "null" {
		return none("the task has no answer to compare with")
	}
	if one, ok := asText(c.Task.Answer); ok {
		return []string{one}, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(c.Task.Answer, &list) != nil || len(list) == 0 {
		return none("task %s: the answer must be a text, a number, true or false, or a list of such: %s", c.Task.ID, clip(string(c.Task.Answer), 200))
	}
	var out []string
	for i, element := range list {
		one, ok := asText(element)
		if !ok {
			return none("task %s: answer %d is neither a text nor a number: %s", c.Task.ID, i, clip(string(element), 200))
		}
		out = append(out, one)
	}
	return out, nil
}

func asText(value json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(value, &text) == nil && string(value) != "null" {
		return text, true
	}
	trimmed := strings.TrimSpace(string(value))
	if trimmed == "true" || trimmed == "false" {
		return trimmed, true
	}
	_, err := number(value)
	return trimmed, err == nil
}

func (e *exact) extract(response string) (string, bool) {
	switch e.o.Extract {
	case "last-line":
		return lastLine(response)
	case "marker":
		at := strings.LastIndex(response, e.o.Marker)
		if at < 0 {
			return "", false
		}
		line, _, _ := strings.Cut(response[at+len(e.o.Marker):], "\n")
		return line, true
	case "boxed":
		return boxed(response)
	case "pattern":
		matches := e.pattern.FindAllStringSubmatch(response, -1)
		if len(matches) == 0 {
			return "", false
		}
		return matches[len(matches)-1][1], true
	}
	return response, true
}

// lastLine is the last line that is not blank.
func lastLine(text string) (string, bool) {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:], text != ""
}

// boxed is what the last \boxed{} holds, whose braces may nest.
func boxed(text string) (string, bool) {
	const open = `\boxed{`
	at := strings.LastIndex(text, open)
	if at < 0 {
		return "", false
	}
	inner, depth := text[at+len(open):], 1
	for i := range len(inner) {
		switch inner[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return inner[:i], true
			}
		}
	}
	return "", false // it never closes
}

func (e *exact) equal(said, answer string) bool {
	said, answer = e.normal(said), e.normal(answer)
	if said == answer {
		return true
	}
	if e.o.Text {
		return false
	}
	x, ok := rational(said)
	y, right := rational(answer)
	return ok && right && e.close(x, y)
}

func (e *exact) normal(text string) string {
	text = strings.TrimSpace(text)
	if e.o.IgnoreSpace {
		text = strings.Join(strings.Fields(text), " ")
	}
	if e.o.IgnoreCase {
		text = strings.ToLower(text)
	}
	return text
}

func (e *exact) close(x, y *big.Rat) bool {
	if x.Cmp(y) == 0 {
		return true
	}
	if e.o.Tolerance == 0 {
		return false
	}
	a, _ := x.Float64()
	b, _ := y.Float64()
	return math.Abs(a-b) <= e.o.Tolerance*math.Abs(b) && !math.IsInf(a, 0) && !math.IsInf(b, 0)
}

// decimal is a number as people and models write it: 1,234.50, -3/4, 6.02e23. The exponent has three
// digits at most: more would make a number too large to compare.
var decimal = regexp.MustCompile(`^([+-]?)(\d{1,3}(?:,\d{3})+|\d*)(\.\d*)?(?:[eE]([+-]?\d{1,3}))?$`)

// rational is the number that a text is, exactly: a decimal or a fraction of two, behind a $ or before
// a % or not.
func rational(text string) (*big.Rat, bool) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "$"), "%")
	if len(text) > 200 {
		return nil, false
	}
	above, below, isFraction := strings.Cut(text, "/")
	if !isFraction {
		return plainNumber(text)
	}
	x, ok := plainNumber(strings.TrimSpace(above))
	y, right := plainNumber(strings.TrimSpace(below))
	if !ok || !right || y.Sign() == 0 {
		return nil, false
	}
	return x.Quo(x, y), true
}

func plainNumber(text string) (*big.Rat, bool) {
	parts := decimal.FindStringSubmatch(text)
	if parts == nil || (parts[2] == "" && len(parts[3]) < 2) {
		return nil, false
	}
	plain := parts[1] + strings.ReplaceAll(parts[2], ",", "") + strings.TrimSuffix(parts[3], ".")
	if parts[2] == "" {
		plain = parts[1] + "0" + parts[3]
	}
	if parts[4] != "" {
		plain += "e" + parts[4]
	}
	return new(big.Rat).SetString(plain)
}
