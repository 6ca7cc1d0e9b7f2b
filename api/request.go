package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/spelling"
)

// depthMax bounds the nesting of a JSON body. No message needs more than a few levels.
const depthMax = 32

// waitMax is the longest that a request may wait for work, in seconds.
const waitMax = 60

// readJSON reads a request's body, one JSON object, into a message. Errors name the field
// and the place, never the value: a body may hold prompts.
func readJSON(r *http.Request, message any) error {
	if given := r.Header.Get("Content-Type"); given != "" {
		if kind, _, err := mime.ParseMediaType(given); err != nil || kind != "application/json" {
			return protocol.Refuse(protocol.CodeInvalid, "the body's Content-Type is %.100q: want application/json", given)
		}
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	defer keepMessage(r, message)
	return decodeJSON(text, message)
}

// decodeJSON decodes one JSON object into a message and refuses unknown fields, what
// follows the object, deep nesting, and what checkStrictly refuses.
func decodeJSON(text []byte, message any) error {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	switch {
	case len(trimmed) == 0:
		return protocol.Refuse(protocol.CodeInvalid, "the body is empty: want a JSON object with the fields %s", strings.Join(fieldNames(message), ", "))
	case trimmed[0] != '{':
		return protocol.Refuse(protocol.CodeInvalid, "the body is no JSON object: want one with the fields %s", strings.Join(fieldNames(message), ", "))
	}
	if deep := depth(trimmed); deep > depthMax {
		return protocol.Refuse(protocol.CodeInvalid, "the body is nested %d levels deep: want at most %d", deep, depthMax).With("depth_max", depthMax)
	}
	decoder := json.NewDecoder(bytes.NewReader(trimmed))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(message); err != nil {
		return jsonRefusal(err, message)
	}
	if rest := trimmed[decoder.InputOffset():]; len(bytes.TrimSpace(rest)) > 0 {
		return protocol.Refuse(protocol.CodeInvalid, "more follows the JSON object at byte %d: want one object and nothing else", decoder.InputOffset())
	}
	return checkStrictly(trimmed, message)
}

// jsonRefusal says what is wrong with a body without quoting it.
func jsonRefusal(err error, message any) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		found := strings.Fields(kind.Value + " ?")[0] // a number's digits follow its kind
		if kind.Type.Kind() == reflect.Float64 && found == "number" {
			found = "number that is too large"
		}
		return protocol.Refuse(protocol.CodeInvalid, "field %q at byte %d holds a %s: want %s", kind.Field, kind.Offset, found, protocol.KindLabel(kind.Type)).With("field", kind.Field)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return protocol.Refuse(protocol.CodeInvalid, "the body is not JSON at byte %d: every number must be finite (NaN and Infinity are no JSON), every text in double quotes", syntax.Offset)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return protocol.Refuse(protocol.CodeInvalid, "the body ends in the middle of its JSON object")
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if plain, err := strconv.Unquote(name); err == nil {
			name = plain
		}
		known := fieldNames(message)
		refusal := protocol.Refuse(protocol.CodeInvalid, "unknown field %.100q: want %s", name, strings.Join(known, ", ")).With("field", clip(name))
		if near := spelling.Nearest(name, known); near != "" {
			refusal.Message = fmt.Sprintf("unknown field %.100q: did you mean %q?", name, near)
			refusal.With("nearest", near)
		}
		return refusal
	}
	return protocol.Refuse(protocol.CodeInvalid, "the body cannot be decoded as a %s", reflect.TypeOf(message).Elem().Name())
}

func clip(s string) string { return s[:min(len(s), 100)] }

// fieldNames are the JSON names of a message, those of the messages in it after them.
func fieldNames(message any) []string {
	var names []string
	seen := make(map[reflect.Type]bool)
	var collect func(t reflect.Type)
	collect = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for field := range t.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
				names = append(names, name)
			}
		}
		for field := range t.Fields() {
			collect(field.Type)
		}
	}
	collect(reflect.TypeOf(message))
	return names
}

// depth is how deeply brackets nest outside of texts.
func depth(text []byte) int {
	deepest, open, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			open++
			deepest = max(deepest, open)
		case c == '}' || c == ']':
			open--
		}
	}
	return deepest
}

// writeJSON answers 200 with a message.
func writeJSON(w http.ResponseWriter, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("api: the reply is no JSON: %w", err)
	}
	writeBody(w, http.StatusOK, "application/json", append(text, '\n'))
	return nil
}

// writeReply answers with what a port said, unless that is an error.
func writeReply(w http.ResponseWriter, message any, err error) error {
	if err != nil {
		return err
	}
	return writeJSON(w, message)
}

// writeBody answers with a whole body. That a client has left is no error of the server's.
func writeBody(w http.ResponseWriter, status int, kind string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("X-Content-Type-Options", "nosniff")
	if header.Get("Cache-Control") == "" {
		header.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// pathNumber reads a number of the path, such as a lease.
func pathNumber(r *http.Request, name string) (int64, error) {
	text := r.PathValue(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return 0, protocol.Refuse(protocol.CodeInvalid, "%s in the path is %.40q: want a number of at least 0 in decimal digits", name, text)
	}
	return n, nil
}

// readWaiting reads a message and refuses a wait in it that is no number of seconds from 0 to 60.
func readWaiting(r *http.Request, message any, wait *float64) error {
	if err := readJSON(r, message); err != nil {
		return err
	}
	if seconds := *wait; math.IsNaN(seconds) || seconds < 0 || seconds > waitMax {
		return protocol.Refuse(protocol.CodeInvalid, "wait_s is %g: want 0 to %d seconds, and to ask again after them", seconds, waitMax).With("wait_s_max", waitMax)
	}
	return nil
}

// refusalOf turns any error of a handler into what the client is told.
func refusalOf(err error) *protocol.Refusal {
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		return refusal
	}
	if body, ok := errors.AsType[*bodyError](err); ok {
		return body.refusal()
	}
	return protocol.RefusalOf(err)
}

// retryAfter is how many seconds a client waits before it tries again, 0 where that does not help.
func retryAfter(code protocol.Code) int {
	switch code {
	case protocol.CodeBusy:
		return 1
	case protocol.CodeUnavailable:
		return 2
	case protocol.CodeDiskFull:
		return 10
	}
	return 0
}

// writeError answers with an error's refusal, or 205 for a run that has ended.
func writeError(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrRunEnded) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusResetContent)
		return
	}
	refusal := refusalOf(err)
	text, err := json.Marshal(protocol.ErrorBody{Error: *refusal})
	if err != nil { // a detail that is no JSON
		refusal = protocol.Refuse(refusal.Code, "%s", refusal.Message)
		text, _ = json.Marshal(protocol.ErrorBody{Error: *refusal})
	}
	if after := retryAfter(refusal.Code); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	writeBody(w, refusal.Code.Status(), "application/json", append(text, '\n'))
}
