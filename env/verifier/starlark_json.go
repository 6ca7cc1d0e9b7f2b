package verifier

import (
	"fmt"

	starlarkjson "go.starlark.net/lib/json"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// What a text may hold that a program has decoded, as a policy may have written it: depthMax brackets in
// one another, as each takes stack, and digitsMax digits of a number, as their time grows faster than they.
const (
	depthMax  = 10_000
	digitsMax = 20_000
)

// safeJSON is Starlark's json with a decode that bears whatever text it is given.
var safeJSON = &starlarkstruct.Module{Name: "json", Members: starlark.StringDict{
	"encode":        starlarkjson.Module.Members["encode"],
	"encode_indent": starlarkjson.Module.Members["encode_indent"],
	"decode":        starlark.NewBuiltin("json.decode", decodeFunction),
	"indent":        starlarkjson.Module.Members["indent"],
}}

// decodeFunction is json.decode(text, default): a text that goes too deep is none that can be decoded.
func decodeFunction(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var text string
	var otherwise starlark.Value
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "x", &text, "default?", &otherwise); err != nil {
		return nil, err
	}
	if err := decodable(text); err != nil {
		if otherwise != nil {
			return otherwise, nil
		}
		return nil, fmt.Errorf("%s: %w", b.Name(), err)
	}
	return starlark.Call(thread, starlarkjson.Module.Members["decode"], args, kwargs)
}

// decodable looks at the brackets and digits of JSON, without those in its strings.
func decodable(text string) error {
	depth, digits, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted {
			if c == '\\' {
				i++
			}
			quoted = c != '"'
			continue
		}
		if c >= '0' && c <= '9' {
			if digits++; digits > digitsMax {
				return fmt.Errorf("a number of more than %d digits", digitsMax)
			}
			continue
		}
		digits = 0
		switch c {
		case '"':
			quoted = true
		case '[', '{':
			if depth++; depth > depthMax {
				return fmt.Errorf("brackets lie more than %d deep in one another", depthMax)
			}
		case ']', '}':
			depth--
		}
	}
	return nil
}

// boundedNumber is int or float, whose time grows faster than the text: a long one is a mistake.
func boundedNumber(name string) *starlark.Builtin {
	inner := starlark.Universe[name]
	return starlark.NewBuiltin(name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if len(args) > 0 {
			if text, ok := starlark.AsString(args[0]); ok && len(text) > digitsMax {
				return nil, fmt.Errorf("%s: a text of %d bytes, more than %d", name, len(text), digitsMax)
			}
		}
		return starlark.Call(thread, inner, args, kwargs)
	})
}
