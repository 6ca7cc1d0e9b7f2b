package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Kind says the fault of a request, as far as callers act on it.
type Kind string

// Kinds.
const (
	// Down: no answer, or one that says that the API itself fails. Asking again may help.
	Down Kind = "down"
	// NotFound: the API does not have what was asked for.
	NotFound Kind = "not found"
	// Denied: the user may not.
	Denied Kind = "denied"
	// Quota: there is no room, or too much was asked at once.
	Quota Kind = "quota"
	// Conflict: the object to be changed was changed meanwhile, or the object to be made is there.
	Conflict Kind = "conflict"
	// Invalid: the request is wrong.
	Invalid Kind = "invalid"
	// Garbled: the answer is not of the form that is documented.
	Garbled Kind = "garbled"
)

// Error is why a request came to nothing.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Status is Kubernetes' form of what came of a request, or of a command.
type Status struct {
	Status, Reason, Message string
	Details                 struct {
		Causes []struct{ Reason, Message string }
	}
}

// Refusal is the error of an answer with an HTTP status of 300 or more.
func Refusal(code int, text []byte) *Error {
	var s Status
	if json.Unmarshal(text, &s) != nil || s.Message == "" {
		s.Message = fmt.Sprintf("%.300s", text)
	}
	kind := Garbled
	switch {
	case code == http.StatusNotFound:
		return &Error{NotFound, fmt.Errorf("not found: %s", s.Message)}
	case code == http.StatusForbidden && strings.Contains(s.Message, "exceeded quota"), code == http.StatusTooManyRequests:
		kind = Quota
	case code == http.StatusForbidden, code == http.StatusUnauthorized:
		kind = Denied
	case code == http.StatusConflict:
		kind = Conflict
	case code == http.StatusUnprocessableEntity, code == http.StatusBadRequest:
		kind = Invalid
	case code >= 500:
		kind = Down
	}
	return &Error{kind, fmt.Errorf("HTTP %d %s: %s", code, s.Reason, s.Message)}
}
