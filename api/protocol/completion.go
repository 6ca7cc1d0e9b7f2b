package protocol

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// RolloutHeader names the rollout of a request under /v1 between parts of one process; its value is a
// claim's id. The server sets it from the API key.
const RolloutHeader = "X-Headway-Rollout"

// CodeContextExceeded (400) refuses a prompt that is too long under /v1. Agents look for this word,
// or for the first ones of its message, to shorten their history.
const CodeContextExceeded Code = "context_length_exceeded"

// PromptLimit says where the limit of a prompt comes from.
const PromptLimit = "the limit is environment.prompt_tokens_max, on embedded engines their task's"

// ContextExceeded refuses a prompt of more tokens than one may have, earlier turns included.
func ContextExceeded(prompt, limit int) *Refusal {
	return Refuse(CodeContextExceeded, "This model's maximum context length is %d tokens for a prompt, earlier turns included, and this one has %d: shorten the history to at most %d, or end the rollout; %s", limit, prompt, limit, PromptLimit).
		With("prompt_tokens_max", limit).With("prompt_tokens", prompt).With("field", "messages")
}

// CompletionError is the form of a refusal under /v1. Clients of OpenAI's API read it; code and
// detail are as everywhere.
type CompletionError struct {
	Message string `json:"message"`
	// Type is OpenAI's word for the kind of error, Param the field that is at fault, nil for none.
	Type   string         `json:"type"`
	Param  *string        `json:"param"`
	Code   Code           `json:"code"`
	Detail map[string]any `json:"detail,omitempty"`
}

// CompletionErrorOf returns the form of a refusal under /v1. The field at fault is the detail's "field".
func CompletionErrorOf(r *Refusal) CompletionError {
	e := CompletionError{Message: r.Message, Type: completionErrorType(r.Code.Status()), Code: r.Code, Detail: r.Detail}
	if field, ok := r.Detail["field"].(string); ok {
		e.Param = &field
	}
	return e
}

func completionErrorType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// CompletionErrorText is the body of a refused request under /v1.
func CompletionErrorText(r *Refusal) []byte {
	body := struct {
		Error CompletionError `json:"error"`
	}{CompletionErrorOf(r)}
	text, err := json.Marshal(body)
	if err != nil { // a detail that is no JSON
		body.Error.Detail = nil
		text, _ = json.Marshal(body)
	}
	return text
}

// WriteCompletionError answers a request under /v1 with a refusal. Clients of OpenAI's API are
// told whether trying again helps: by themselves they would repeat a conflict, too.
func WriteCompletionError(w http.ResponseWriter, r *Refusal) {
	after := 0
	switch r.Code {
	case CodeBusy:
		after = 1
	case CodeUnavailable:
		after = 2
	case CodeDiskFull:
		after = 10
	}
	header := w.Header()
	header.Set("X-Should-Retry", strconv.FormatBool(after > 0))
	if after > 0 {
		header.Set("Retry-After", strconv.Itoa(after))
	}
	text := append(CompletionErrorText(r), '\n')
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(r.Code.Status())
	_, _ = w.Write(text) // a client that has left reads nothing
}
