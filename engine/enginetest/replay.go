package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// names are the keys of a request's body that name it, its session or its cache: they differ
// from one run to the next. What an answer repeats of the recorded ones is replaced by the caller's.
var names = []string{"request_id", "request_ids", "rid", "session_id", "cache_salt", "extra_key", "created"}

// Replay is a server that answers from a conversation. Requests are matched by method, path and
// body, names apart, and answered in the order in which they were recorded. The last answer to a
// request is repeated.
type Replay struct {
	front *httptest.Server
	mu    sync.Mutex
	// answers by the request, and those that were given at least once.
	answers map[string][]*Exchange
	next    map[string]int
	missed  []string
}

// NewReplay returns a server that answers from the conversation, on a free port of this machine.
func NewReplay(t *Transcript) *Replay {
	r := &Replay{answers: map[string][]*Exchange{}, next: map[string]int{}}
	for i := range t.Exchanges {
		e := &t.Exchanges[i]
		key := keyOf(e.Method, e.Path, e.Body)
		r.answers[key] = append(r.answers[key], e)
	}
	r.front = httptest.NewServer(http.HandlerFunc(r.serve))
	return r
}

// URL is the server's address.
func (r *Replay) URL() string { return r.front.URL }

// Close ends the server and cuts running streams off.
func (r *Replay) Close() {
	r.front.CloseClientConnections()
	r.front.Close()
}

// Missed are the requests that were not recorded, which were answered with 501.
func (r *Replay) Missed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.missed)
}

// Unasked are the recorded requests that were not sent.
func (r *Replay) Unasked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []string
	for _, key := range slices.Sorted(maps.Keys(r.answers)) {
		if r.next[key] == 0 {
			left = append(left, key)
		}
	}
	return left
}

// keyOf is what a request is matched by.
func keyOf(method, path string, body []byte) string {
	key := method + " " + path
	if len(body) == 0 {
		return key
	}
	var content map[string]any
	if json.Unmarshal(body, &content) != nil {
		return key + " " + string(body)
	}
	for _, name := range names {
		delete(content, name)
	}
	text, _ := json.Marshal(content) // what was read is written again: its keys are sorted
	return key + " " + string(text)
}

func (r *Replay) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	e := r.take(req, body)
	if e == nil {
		http.Error(w, r.miss(req, body), http.StatusNotImplemented)
		return
	}
	renamed := renamer(e.Body, body)
	for name, values := range e.Header {
		w.Header()[name] = values
	}
	if e.Status != 0 {
		w.WriteHeader(e.Status)
	}
	for _, p := range e.Pieces {
		if _, err := w.Write([]byte(renamed.Replace(string(p.Data)))); err != nil {
			return
		}
		if e.Stream() && http.NewResponseController(w).Flush() != nil {
			return
		}
	}
	switch e.End {
	case EndCut:
		panic(http.ErrAbortHandler)
	case EndClient:
		<-req.Context().Done() // there was more to come, which the client did not wait for
	}
}

// take returns the answer that is due, nil for a request that was not recorded.
func (r *Replay) take(req *http.Request, body []byte) *Exchange {
	key := keyOf(req.Method, req.URL.RequestURI(), body)
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.answers[key]
	if len(all) == 0 {
		return nil
	}
	e := all[min(r.next[key], len(all)-1)]
	r.next[key]++
	return e
}

// miss notes a request that was not recorded and says what was recorded of its path.
func (r *Replay) miss(req *http.Request, body []byte) string {
	key := keyOf(req.Method, req.URL.RequestURI(), body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed = append(r.missed, key)
	var near []string
	for known := range r.answers {
		if strings.HasPrefix(known, req.Method+" "+req.URL.RequestURI()) {
			near = append(near, fmt.Sprintf("%.400s", known))
		}
	}
	slices.Sort(near)
	return fmt.Sprintf("not recorded: %.400s\nrecorded are: %s", key, strings.Join(near, "\n"))
}

// renamer replaces the names in a recorded request by those of another.
func renamer(recorded, asked []byte) *strings.Replacer {
	var was, is map[string]any
	if !bytes.Contains(recorded, []byte("{")) || json.Unmarshal(recorded, &was) != nil || json.Unmarshal(asked, &is) != nil {
		return strings.NewReplacer()
	}
	var pairs []string
	for _, name := range names {
		from, _ := was[name].(string)
		to, _ := is[name].(string)
		if len(from) >= 4 && to != "" { // a shorter one may stand for something else
			pairs = append(pairs, from, to)
		}
	}
	return strings.NewReplacer(pairs...)
}
