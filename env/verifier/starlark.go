package verifier

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	starlarkmath "go.starlark.net/lib/math"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/headway-rl/headway/env/sandbox"
)

// inputMax bounds what a case may bring into Starlark, in bytes.
const inputMax = 16 << 20

// script is a program that defines verify(response, answer, task, messages).
type script struct {
	o      program
	verify *starlark.Function
}

// program is what a process that evaluates is told first.
type program struct {
	// Name and Source of the text; MayBeExpression: it came from no file.
	Name, Source    string
	MayBeExpression bool
	// Steps are the most for a case, Range holds every reward.
	Steps int
	Range [2]float64
	// ProcessorS is the most processor time for a case, in seconds.
	ProcessorS float64
}

// dialect has sets beside the standard; loops and functions end, as there is neither while nor recursion.
var dialect = &syntax.FileOptions{Set: true}

// parameters of verify, in order.
var parameters = []string{"response", "answer", "task", "messages"}

// programOf reads the options; the program has compiled when it returns.
func programOf(o Options) (program, error) {
	name, source := "expression", o.Expression
	switch {
	case o.File != "" && o.Expression != "":
		return program{}, errors.New("verifier: starlark takes an expression or a file, not both")
	case o.File != "":
		text, err := os.ReadFile(o.File)
		if err != nil {
			return program{}, fmt.Errorf("verifier: starlark: %w", err)
		}
		name, source = o.File, string(text)
	case strings.TrimSpace(o.Expression) == "":
		return program{}, errors.New(`verifier: starlark needs an expression, such as response.strip() == answer, or a file that defines verify(response, answer, task, messages)`)
	}
	if o.Steps < 0 {
		return program{}, fmt.Errorf("verifier: %d steps for starlark: it must be above 0, or 0 for 10 million", o.Steps)
	}
	p := program{name, source, o.File == "", cmp.Or(o.Steps, 10_000_000), o.Range, o.TimeoutS / 2}
	if _, err := compile(p); err != nil {
		return program{}, fmt.Errorf("verifier: starlark: %w", located(err))
	}
	return p, nil
}

// compile makes the function of a program, or of an expression, with its errors' places.
func compile(p program) (*starlark.Function, error) {
	file, err := parse(p.Name, p.Source, p.MayBeExpression)
	if err != nil {
		return nil, err
	}
	known := predeclared()
	compiled, err := starlark.FileProgram(file, known.Has)
	if err != nil {
		return nil, err
	}
	thread := newThread(nil)
	thread.SetMaxExecutionSteps(uint64(p.Steps))
	globals, err := compiled.Init(thread, known)
	if err != nil {
		return nil, err
	}
	globals.Freeze()
	verify, ok := globals["verify"].(*starlark.Function)
	if !ok {
		return nil, fmt.Errorf("%s defines no function verify(%s)", p.Name, strings.Join(parameters, ", "))
	}
	if verify.NumParams() != len(parameters) && !verify.HasVarargs() {
		return nil, fmt.Errorf("%s: verify takes %d parameters, and must take %d: %s", verify.Position(), verify.NumParams(), len(parameters), strings.Join(parameters, ", "))
	}
	return verify, nil
}

// parse reads a program. An expression becomes the body of verify: its places stay those of the source.
func parse(name, source string, mayBeExpression bool) (*syntax.File, error) {
	if mayBeExpression && !strings.Contains(source, "def verify") {
		body, err := dialect.ParseExpr(name, source, 0)
		if err != nil {
			return nil, err
		}
		at, _ := body.Span()
		define := &syntax.DefStmt{Def: at, Name: &syntax.Ident{NamePos: at, Name: "verify"}, Body: []syntax.Stmt{&syntax.ReturnStmt{Return: at, Result: body}}}
		for _, parameter := range parameters {
			define.Params = append(define.Params, &syntax.Ident{NamePos: at, Name: parameter})
		}
		return &syntax.File{Path: name, Stmts: []syntax.Stmt{define}, Options: dialect}, nil
	}
	file, err := dialect.Parse(name, source, 0)
	if err != nil {
		return nil, err
	}
	for _, statement := range file.Stmts {
		if load, ok := statement.(*syntax.LoadStmt); ok {
			return nil, fmt.Errorf("%s: there is nothing to load: write what is needed into the program", load.Load)
		}
	}
	return file, nil
}

// located is an error with where it is; one from running has the place in its trace.
func located(err error) error {
	if ran, ok := errors.AsType[*starlark.EvalError](err); ok {
		where := ""
		for _, frame := range ran.CallStack {
			if frame.Pos.IsValid() && frame.Pos.Line > 0 {
				where = frame.Pos.String() + ": "
			}
		}
		return fmt.Errorf("%s%s", where, ran.Msg)
	}
	return err
}

// printed keeps the beginning of what a program prints: it becomes the verdict's note.
type printed struct{ text strings.Builder }

func newThread(into *printed) *starlark.Thread {
	return &starlark.Thread{Name: "verify", Print: func(_ *starlark.Thread, message string) {
		if into != nil && into.text.Len() < noteMax {
			into.text.WriteString(clip(message, noteMax) + "\n")
		}
	}}
}

// evaluate judges a case, which is written as a request.
func (s *script) evaluate(text []byte) (Verdict, error) {
	var notes printed
	thread := newThread(&notes)
	thread.SetMaxExecutionSteps(uint64(s.o.Steps))
	arguments, err := inputs(thread, text)
	if err != nil {
		return Verdict{}, sandbox.Fail(sandbox.BadTask, "verify", "", "%w", err)
	}
	result, err := starlark.Call(thread, s.verify, arguments, nil)
	if err != nil {
		return Verdict{}, sandbox.Fail(sandbox.VerifierCrash, "verify", "", "%w", located(err))
	}
	a, err := answerOf(result, s.o.Range)
	if err != nil {
		return Verdict{}, sandbox.Fail(sandbox.VerifierProtocol, "verify", "", "verify returned %s: %w", clip(result.Type(), 80), err)
	}
	if a.verdict.Note == "" {
		a.verdict.Note = strings.TrimSpace(notes.text.String())
	}
	return a.finish(s.o.Range)
}

// inputs are the arguments of verify: text, and what the JSON of answer, task and messages says.
func inputs(thread *starlark.Thread, text []byte) (starlark.Tuple, error) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	var arguments starlark.Tuple
	for _, name := range parameters {
		value, err := decode(thread, whole[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		arguments = append(arguments, value)
	}
	return arguments, nil
}

func decode(thread *starlark.Thread, text json.RawMessage) (starlark.Value, error) {
	return starlark.Call(thread, safeJSON.Members["decode"], starlark.Tuple{starlark.String(text)}, nil)
}

// answerOf reads what verify returned: a bool is the highest or the lowest reward, a number one, and a
// dict the words of every other verifier.
func answerOf(result starlark.Value, within [2]float64) (a answered, err error) {
	switch result := result.(type) {
	case starlark.Bool:
		a.verdict.Reward, a.rewarded = within[0], true
		if result {
			a.verdict.Reward = within[1]
		}
		return a, nil
	case starlark.Int, starlark.Float:
		a.rewarded = true
		a.verdict.Reward, err = asFloat(result)
		return a, err
	case *starlark.Dict:
		return answerOfDict(result)
	}
	return a, fmt.Errorf("it must be a number, True or False, or a dict with reward: %s", clip(result.String(), 200))
}

func asFloat(value starlark.Value) (float64, error) {
	if _, isBool := value.(starlark.Bool); isBool {
		return 0, fmt.Errorf("%v is no number", value)
	}
	x, ok := starlark.AsFloat(value)
	if !ok {
		return 0, fmt.Errorf("%s is no number", clip(value.String(), 80))
	}
	return x, nil
}

func answerOfDict(d *starlark.Dict) (a answered, err error) {
	for _, item := range d.Items() {
		name, _ := starlark.AsString(item[0])
		switch name {
		case "reward":
			a.rewarded = true
			a.verdict.Reward, err = asFloat(item[1])
		case "exact":
			exact, ok := item[1].(starlark.Bool)
			if a.judgedExact, a.verdict.Exact = true, bool(exact); !ok {
				err = errors.New("it must be True or False")
			}
		case "steps":
			a.verdict.Steps, err = stepsOf(item[1])
		case "metrics":
			a.verdict.Metrics, err = metricsOf(item[1])
		case "note":
			note, ok := starlark.AsString(item[1])
			if a.verdict.Note = note; !ok {
				err = errors.New("it must be a text")
			}
		default:
			err = errors.New("there is no such word: there are reward, exact, steps, metrics and note")
		}
		if err != nil {
			return a, fmt.Errorf("%s: %w", clip(item[0].String(), 80), err)
		}
	}
	return a, nil
}

func stepsOf(value starlark.Value) (steps []float64, err error) {
	list, ok := value.(*starlark.List)
	if !ok || list.Len() > stepsMax {
		return nil, fmt.Errorf("it must be a list of at most %d numbers", stepsMax)
	}
	for i := range list.Len() {
		x, err := asFloat(list.Index(i))
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		steps = append(steps, x)
	}
	return steps, nil
}

func metricsOf(value starlark.Value) (map[string]float64, error) {
	d, ok := value.(*starlark.Dict)
	if !ok || d.Len() > metricsMax {
		return nil, fmt.Errorf("it must be a dict of at most %d numbers", metricsMax)
	}
	metrics := map[string]float64{}
	for _, item := range d.Items() {
		name, _ := starlark.AsString(item[0])
		x, err := asFloat(item[1])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", clip(name, 80), err)
		}
		metrics[name] = x
	}
	return metrics, nil
}

// predeclared is what programs have beside Starlark's own: json, math, and what finds answers in text.
func predeclared() starlark.StringDict {
	return starlark.StringDict{
		"json": safeJSON, "math": starlarkmath.Module,
		"int": boundedNumber("int"), "float": boundedNumber("float"),
		"boxed":     starlark.NewBuiltin("boxed", textFunction(boxed)),
		"last_line": starlark.NewBuiltin("last_line", textFunction(lastLine)),
		"number":    starlark.NewBuiltin("number", numberFunction),
		"search":    starlark.NewBuiltin("search", searchFunction),
	}
}

type builtin = func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error)

// textFunction is of one text: the part that is found, or None.
func textFunction(find func(string) (string, bool)) builtin {
	return func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var text string
		if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &text); err != nil {
			return nil, err
		}
		if found, ok := find(text); ok {
			return starlark.String(found), nil
		}
		return starlark.None, nil
	}
}

// numberFunction is number(text): the number that a text is as people write it, or None.
func numberFunction(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var text string
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &text); err != nil {
		return nil, err
	}
	x, ok := rational(strings.TrimSpace(text))
	if !ok {
		return starlark.None, nil
	}
	if x.IsInt() {
		return starlark.MakeBigInt(x.Num()), nil
	}
	f, _ := x.Float64()
	return starlark.Float(f), nil
}

// searchFunction is search(pattern, text): the first match and its groups as a list, or None. Patterns
// are RE2's, whose time grows with the text and no faster.
func searchFunction(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var pattern, text string
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 2, &pattern, &text); err != nil {
		return nil, err
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	match := compiled.FindStringSubmatch(text)
	if match == nil {
		return starlark.None, nil
	}
	groups := make([]starlark.Value, len(match))
	for i, group := range match {
		groups[i] = starlark.String(group)
	}
	return starlark.NewList(groups), nil
}
