package upstream

import (
	"errors"
	"fmt"
	"strings"
)

// excerptBytes is how much of a piece is kept to be quoted.
const excerptBytes = 200

// excerpt stands in an error for a piece of a reply.
type excerpt struct {
	begin []byte
	size  int
}

// Excerpt returns an error that stands for a piece of a reply which is not understood. The piece may hold
// a completion. So the error says its length, and is quoted only where Options.LogPayloads is set.
func Excerpt(data []byte) error {
	return &excerpt{append([]byte{}, data[:min(len(data), excerptBytes)]...), len(data)}
}

// Error implements error.
func (x *excerpt) Error() string {
	return fmt.Sprintf("%d bytes that server.log_payloads would show", x.size)
}

// quoted adds to an error the beginning of what it stands for, where logs may have that.
func (e *Engine) quoted(err error) error {
	if !e.opt.LogPayloads {
		return err
	}
	if x, ok := errors.AsType[*excerpt](err); ok {
		return fmt.Errorf("%w: %q", err, x.begin)
	}
	return err
}

// Said cuts the words of a server to errorBytesMax: an error that quotes them is logged.
func Said(words string) string {
	if len(words) <= errorBytesMax {
		return words
	}
	return strings.ToValidUTF8(words[:errorBytesMax], "") + "…"
}

// brief cuts the text of an error that may quote a server, as those of encoding/json quote numbers.
type brief struct{ error }

// Error implements error.
func (b brief) Error() string { return Said(b.error.Error()) }

// Unwrap returns the whole error.
func (b brief) Unwrap() error { return b.error }

// cutShort returns an error with its text cut, and nil for none.
func cutShort(err error) error {
	if err == nil {
		return nil
	}
	return brief{err}
}
