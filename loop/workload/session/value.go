package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// fault is a value that cannot be used, by the field that holds it.
type fault struct{ field, got, want string }

func (f *fault) Error() string {
	if f.got == "" {
		return fmt.Sprintf("field %s is missing: want %s", f.field, f.want)
	}
	return fmt.Sprintf("field %s is %s: want %s", f.field, f.got, f.want)
}

// decode reads one JSON object.
func decode(text []byte, into any) error { return json.Unmarshal(text, into) }

// asFault says an error of a type in the words of this package.
func asFault(err *json.UnmarshalTypeError) error {
	want := "another type"
	switch err.Type.String() {
	case "session.tokens":
		want = wantTokens(0)
	case "float64", "json.Number":
		want = wantSeconds
	case "string":
		want = "a text"
	default:
		if err.Field == "" {
			return fmt.Errorf("a line holds a JSON %s: want a JSON object", err.Value)
		}
		want = "a list, or an object, of the format"
	}
	return &fault{err.Field, err.Value, want}
}

// tokens is a number of tokens; nil where the field is missing.
type tokens int64

func wantTokens(least int) string {
	return fmt.Sprintf("a whole number of tokens from %d to %d", least, MaxTokens)
}

const wantSeconds = "a finite time of at least 0, below 31 years"

// between returns the number, which must be from least to MaxTokens.
func (t *tokens) between(field string, least int) (int, error) {
	if t == nil {
		return 0, &fault{field, "", wantTokens(least)}
	}
	if *t < tokens(least) || *t > MaxTokens {
		return 0, &fault{field, strconv.FormatInt(int64(*t), 10), wantTokens(least)}
	}
	return int(*t), nil
}

// seconds returns a time in units of a second, of which unit are one; nil is 0 unless it is needed.
func seconds(t *float64, field string, unit float64, needed bool) (float64, error) {
	if t == nil {
		if needed {
			return 0, &fault{field, "", wantSeconds}
		}
		return 0, nil
	}
	if s := *t / unit; s >= 0 && s <= MaxSeconds {
		return s, nil
	}
	return 0, &fault{field, strconv.FormatFloat(*t, 'g', -1, 64), wantSeconds}
}

// numbers are whole numbers of at least 0. A list of its own is ten times as fast to read as encoding/json
// makes it, and hash ids are nine tenths of a file.
type numbers []uint64

// UnmarshalJSON reads a list of whole numbers.
func (n *numbers) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if text[0] != '[' {
		return &badNumber{got: string(clip(text))}
	}
	list := make(numbers, 0, bytes.Count(text, []byte{','})+1)
	for i := 1; ; i++ {
		i = blank(text, i)
		if text[i] == ']' && len(list) == 0 {
			break
		}
		from, value := i, uint64(0)
		for ; text[i] >= '0' && text[i] <= '9'; i++ {
			digit := uint64(text[i] - '0')
			if value > (math.MaxUint64-digit)/10 {
				return &badNumber{len(list), string(clip(text[from:])), true}
			}
			value = value*10 + digit
		}
		end := blank(text, i)
		if i == from || text[end] != ',' && text[end] != ']' {
			return &badNumber{len(list), string(clip(text[from:])), true}
		}
		list = append(list, value)
		if i = end; text[i] == ']' {
			break
		}
	}
	*n = list
	return nil
}

// blank returns where the white space from i on ends.
func blank(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r' {
		i++
	}
	return i
}

// clip cuts a value out of what follows it.
func clip(text []byte) []byte {
	if end := bytes.IndexAny(text, ",] \t\n\r"); end > 0 {
		text = text[:end]
	}
	return text[:min(len(text), 32)]
}

// badNumber is an element of a list that is no whole number.
type badNumber struct {
	index  int
	got    string
	inList bool
}

func (b *badNumber) Error() string {
	const want = "want whole numbers of at least 0, below 2^64"
	if !b.inList {
		return fmt.Sprintf("hash_ids, out_lens or obs_lens is %s: want a list of whole numbers", b.got)
	}
	return fmt.Sprintf("element %d of a list is %s: %s", b.index, b.got, want)
}

// tokensAt returns one of the numbers as tokens, from least to MaxTokens.
func (n numbers) tokensAt(field string, i, least int) (int, error) {
	if v := n[i]; v < uint64(least) || v > MaxTokens {
		return 0, &fault{fmt.Sprintf("%s[%d]", field, i), strconv.FormatUint(v, 10), wantTokens(least)}
	}
	return int(n[i]), nil
}
