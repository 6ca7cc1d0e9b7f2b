package protocol

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Code names why a request is refused; clients branch on it, never on the message.
type Code string

// Codes, with the HTTP status each is sent with.
const (
	// CodeInvalid (400): the request cannot be meant. Sending it again does not help.
	CodeInvalid Code = "invalid"
	// CodeUnauthorized (401): no token, or one that is not known.
	CodeUnauthorized Code = "unauthorized"
	// CodeForbidden (403): the token's role may not do this.
	CodeForbidden Code = "forbidden"
	// CodeNotFound (404): there is no such thing, or not any more.
	CodeNotFound Code = "not_found"
	// CodeMethod (405): the path is there for other methods, which the header Allow names.
	CodeMethod Code = "method_not_allowed"
	// CodeConflict (409): it contradicts what is there already.
	CodeConflict Code = "conflict"
	// CodeExpired (410): the lease or claim ran out, or was given to another; its work counts for nothing.
	CodeExpired Code = "expired"
	// CodeTooLarge (413): the body, a header or a tensor exceeds its limit.
	CodeTooLarge Code = "too_large"
	// CodeBusy (429): a limit on concurrency is reached. Try again after a while.
	CodeBusy Code = "busy"
	// CodeInternal (500): a defect of the server.
	CodeInternal Code = "internal"
	// CodeUnavailable (503): not now: starting, draining, or no longer the writer. Try again, elsewhere or later.
	CodeUnavailable Code = "unavailable"
	// CodeDiskFull (507): there is no room to make it durable. Nothing was changed; try again when there is.
	CodeDiskFull Code = "disk_full"
)

// Status is the HTTP status of the code.
func (c Code) Status() int {
	switch c {
	case CodeInvalid, CodeContextExceeded:
		return http.StatusBadRequest
	case CodeUnauthorized:
		return http.StatusUnauthorized
	case CodeForbidden:
		return http.StatusForbidden
	case CodeNotFound:
		return http.StatusNotFound
	case CodeMethod:
		return http.StatusMethodNotAllowed
	case CodeConflict:
		return http.StatusConflict
	case CodeExpired:
		return http.StatusGone
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeBusy:
		return http.StatusTooManyRequests
	case CodeUnavailable:
		return http.StatusServiceUnavailable
	case CodeDiskFull:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

// Lasting reports whether the code is for good, by the state of things: to send the same again does not help.
func (c Code) Lasting() bool {
	return c == CodeInvalid || c == CodeNotFound || c == CodeConflict || c == CodeExpired || c == CodeTooLarge
}

// Refusal is an error that a client is told: the fault, its place, the expected value, the remedy.
type Refusal struct {
	// Code is the reason, for programs.
	Code Code `json:"code"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// Detail has the figures of the message by name; nil for none.
	Detail map[string]any `json:"detail,omitempty"`
}

// ErrorBody is the body of every refused request.
type ErrorBody struct {
	Error Refusal `json:"error"`
}

// Error returns code and message.
func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Message }

// Refuse returns a refusal.
func Refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With adds one figure to the detail and returns the refusal.
func (r *Refusal) With(name string, value any) *Refusal {
	if r.Detail == nil {
		r.Detail = make(map[string]any)
	}
	r.Detail[name] = value
	return r
}

// RefusalOf returns the refusal in an error's chain; an error without one is CodeInternal.
func RefusalOf(err error) *Refusal {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal
	}
	return Refuse(CodeInternal, "%v", err)
}

// Elsewhere refuses a method that a path does not have, and names in the header Allow those that it has. It is nil for a path
// that is not there. The mux answers all such requests by its pattern "/".
func Elsewhere(w http.ResponseWriter, r *http.Request, mux *http.ServeMux) *Refusal {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" {
			methods = append(methods, method)
		}
	}
	if len(methods) == 0 || slices.Contains(methods, r.Method) {
		return nil
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return Refuse(CodeMethod, "%.20q is not for this path: want %s", r.Method, strings.Join(methods, " or "))
}

// ErrRunEnded is returned to those who wait for work when there will be none; clients are sent 205.
var ErrRunEnded = errors.New("the run has ended")
