package scenario

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/history"
	"github.com/headway-rl/headway/cmd/lab/world/machine"
)

// http is a client of a host whose exchanges are written into the history.
func (w *World) http(h *machine.Host) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: 60 * time.Second, DisableCompression: true}
	return &http.Client{Transport: &recorder{w: w, host: h.Name, inner: transport}}
}

// recorder writes exchanges down. It doubles requests and loses answers where a fault says so.
type recorder struct {
	w     *World
	host  string
	inner http.RoundTripper
}

var errMute = errors.New("connection reset by peer: the answer was lost")

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := bodyOf(request)
	if err != nil {
		return nil, err
	}
	e := r.w.ask(r.host, request, body)
	if r.w.is(r.w.twice, r.host) && body != nil {
		go r.again(request, body)
	}
	response, err := r.inner.RoundTrip(request)
	if err != nil {
		r.w.over(e, func() { e.Error = err.Error() })
		return nil, err
	}
	status, kind := response.StatusCode, response.Header.Get("Content-Type")
	if r.w.is(r.w.mute, r.host) {
		lost := lose(response)
		r.w.over(e, func() { e.Type, e.Lost, e.Error = kind, lost, errMute.Error() })
		return nil, errMute
	}
	response.Body = &heard{ReadCloser: response.Body, end: func(all []byte, err error) {
		r.w.over(e, func() {
			e.Status, e.Type, e.Response = status, kind, all
			if err != nil {
				e.Error = err.Error()
			}
		})
	}}
	return response, nil
}

func (w *World) is(set map[string]bool, host string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return set[host]
}

func (w *World) turn(set map[string]bool, host string) func(bool) {
	return func(on bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		set[host] = on
	}
}

// again sends a request once more, as a proxy does that has tried twice, and drops its answer.
func (r *recorder) again(request *http.Request, body []byte) {
	second := request.Clone(request.Context())
	second.Body = io.NopCloser(bytes.NewReader(body))
	e := r.w.ask(r.host, second, body)
	status, lost := 0, []byte(nil)
	defer r.w.over(e, func() {
		e.Status, e.Lost, e.Error = status, lost, "the second of two that were sent: its answer was dropped"
	})
	if response, err := r.inner.RoundTrip(second); err == nil {
		if response.StatusCode == http.StatusInternalServerError { // the proxy sees it
			status = response.StatusCode
		}
		lost = lose(response)
	}
}

// lose is an answer that its host does not get.
func lose(response *http.Response) []byte {
	all, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK {
		return nil
	}
	return all
}

// bodyOf reads a request's body, and has it be sent from memory.
func bodyOf(request *http.Request) ([]byte, error) {
	if request.Body == nil || request.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(request.Body)
	_ = request.Body.Close()
	request.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// heard keeps the bytes of a body that somebody reads.
type heard struct {
	io.ReadCloser
	all  bytes.Buffer
	end  func([]byte, error)
	over bool
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.all.Write(p[:n])
	if err != nil && !h.over {
		h.over = true
		if err == io.EOF {
			h.end(h.all.Bytes(), nil)
		} else {
			h.end(h.all.Bytes(), err)
		}
	}
	return n, err
}

func (h *heard) Close() error {
	if !h.over {
		h.over = true
		h.end(h.all.Bytes(), errors.New("it was not read to its end"))
	}
	return h.ReadCloser.Close()
}

// callOf names the call of a path: its last word that is no identifier.
func callOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	words := strings.Split(strings.Trim(path, "/"), "/")
	if len(words) > 2 && words[0] == "api" {
		words = words[2:]
	}
	switch {
	case words[0] == "weights" && len(words) > 2:
		return "weights files"
	case words[0] == "weights" && len(words) == 2 && words[1] != "latest":
		return "weights version"
	case words[0] == "groups" && words[1] != "ready":
		return "groups"
	case len(words) == 3, words[0] == "batches" && len(words) > 3:
		return words[0] + " " + words[2]
	case words[0] == "receivers" || words[0] == "transfer":
		return words[0]
	}
	return strings.Join(words[:min(2, len(words))], " ")
}

// since is the world's time since its start, in nanoseconds.
func (w *World) since() int64 { return int64(time.Since(w.began)) }

// asked is an exchange that is under way.
type asked struct {
	host, call string
	history.Exchange
}

// ask keeps an exchange that begins.
func (w *World) ask(host string, request *http.Request, body []byte) *asked {
	e := &asked{host: host, Exchange: history.Exchange{
		BeganNS: w.since(), To: w.machine.Name(request.URL.Hostname()), Method: request.Method, Path: request.URL.RequestURI(), Key: request.Header.Get("Idempotency-Key"), Request: body,
		Bearer: strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer "), Range: request.Header.Get("Range"),
	}}
	e.call = callOf(e.Path)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[e.call]++
	w.met(host, func(a *awaited) bool { return a.Asks == e.call })
	w.asked = append(w.asked, e)
	return e
}

// over writes an exchange down that has ended, as said completes it, unless its host was killed.
func (w *World) over(e *asked, said func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.asked, e) {
		said()
		w.end(e)
	}
}

func (w *World) end(e *asked) {
	i := slices.Index(w.asked, e)
	w.asked = slices.Delete(w.asked, i, i+1)
	w.open[e.call]--
	if e.Status == http.StatusOK {
		w.met(e.host, func(a *awaited) bool { return a.Hears == e.call })
	}
	w.add(history.Line{Host: e.host, Kind: "exchange", Exchange: &e.Exchange})
}

// unheard writes down what a host has asked for, and is never told; that of all for an empty name.
func (w *World) unheard(host, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range slices.Clone(w.asked) {
		if host == "" || e.host == host {
			e.Status, e.Type, e.Response, e.Error = 0, "", nil, why
			w.end(e)
		}
	}
}

func (w *World) add(line history.Line) {
	line.AtNS = w.since()
	w.History = append(w.History, line)
}

func (w *World) note(host, kind, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(history.Line{Host: host, Kind: kind, Text: text})
}

// Steps is the number of train steps that were acknowledged.
func (w *World) Steps() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	steps := 0
	for _, line := range w.History {
		e := line.Exchange
		if e == nil || e.Method != http.MethodPost || e.Status != http.StatusOK {
			continue
		}
		if e.Path == "/api/v1/weights" || callOf(e.Path) == "batches ack" {
			steps++
		}
	}
	return steps
}

// Seconds is how long the world has lasted, in its own time.
func (w *World) Seconds() float64 { return time.Since(w.began).Seconds() }
