package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Kind is the class of an [Error]: the server's word for it.
type Kind string

// Kinds of refusals.
const (
	Invalid      Kind = "invalid"
	Unauthorized Kind = "unauthorized"
	Forbidden    Kind = "forbidden"
	NotFound     Kind = "not_found"
	Conflict     Kind = "conflict"
	Expired      Kind = "expired"
	TooLarge     Kind = "too_large"
	Busy         Kind = "busy"
	Internal     Kind = "internal"
	Unavailable  Kind = "unavailable"
	DiskFull     Kind = "disk_full"
	RunEnded     Kind = "run_ended"
)

var kinds = map[Kind]bool{
	Invalid: true, Unauthorized: true, Forbidden: true, NotFound: true, Conflict: true, Expired: true, TooLarge: true,
	Busy: true, Internal: true, Unavailable: true, DiskFull: true, RunEnded: true,
}

var byStatus = map[int]Kind{
	205: RunEnded, 400: Invalid, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Expired,
	413: TooLarge, 429: Busy, 431: TooLarge, 502: Unavailable, 503: Unavailable, 504: Unavailable, 507: DiskFull,
}

// Error is a refusal, by the server or by the client before it sends anything.
type Error struct {
	Kind Kind
	// Code is the server's own word, which may be none of the kinds.
	Code    string
	Message string
	// Detail has the refusal's figures by name.
	Detail map[string]any
	// Status is that of HTTP, 0 where no server said it.
	Status int
	// Unanswered says that a try of the call was not answered, or by a defect: it may have been done.
	Unanswered bool
	cause      error
}

// Error says the code and the message.
func (e *Error) Error() string {
	if e.Code != "" {
		return e.Code + ": " + e.Message
	}
	return string(e.Kind) + ": " + e.Message
}

// Unwrap returns what the connection failed with, nil where a server answered.
func (e *Error) Unwrap() error { return e.cause }

// IsKind reports whether an error is a refusal of one of the kinds.
func IsKind(err error, want ...Kind) bool {
	var refused *Error
	if !errors.As(err, &refused) {
		return false
	}
	for _, kind := range want {
		if refused.Kind == kind {
			return true
		}
	}
	return false
}

// refuse makes an error that no server said.
func refuse(kind Kind, format string, values ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, values...)}
}

// refusal is the error that an answer says.
func refusal(status int, body []byte) *Error {
	kind, known := byStatus[status]
	if !known {
		kind = Invalid
		if status >= 500 {
			kind = Internal
		}
	}
	var said struct {
		Error *map[string]any `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error == nil {
		text := cut(strings.TrimSpace(string(body)), 500)
		if text == "" {
			text = fmt.Sprintf("HTTP status %d", status)
		}
		return &Error{Kind: kind, Message: text, Status: status}
	}
	parts := *said.Error
	code, _ := parts["code"].(string)
	if kinds[Kind(code)] {
		kind = Kind(code)
	} else if !known {
		kind = Internal
	}
	message, _ := parts["message"].(string)
	if message == "" {
		message = string(body)
	}
	detail, _ := parts["detail"].(map[string]any)
	return &Error{Kind: kind, Code: code, Message: message, Detail: detail, Status: status}
}

// cut shortens a text to so many characters.
func cut(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most])
	}
	return text
}
