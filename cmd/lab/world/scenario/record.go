package scenario

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/history"
	"github.com/headway-rl/headway/cmd/lab/world/machine"
)

// http is a client of a host whose exchanges are written into the history.
func (w *World) http(h *machine.Host) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: 60 * time.Second}
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
	e := &history.Exchange{BeganNS: r.w.since(), To: r.w.machine.Name(request.URL.Hostname()), Method: request.Method, Path: request.URL.RequestURI(), Request: body}
	call := callOf(e.Path)
	r.w.open[call]++
	if r.w.twice[r.host] && body != nil {
		go r.again(request, body)
	}
	response, err := r.inner.RoundTrip(request)
	if err != nil {
		e.Error = err.Error()
		r.w.over(r.host, call, e)
		return nil, err
	}
	e.Status, e.Type = response.StatusCode, response.Header.Get("Content-Type")
	if r.w.mute[r.host] {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		e.Status, e.Error = 0, errMute.Error()
		r.w.over(r.host, call, e)
		return nil, errMute
	}
	response.Body = &heard{ReadCloser: response.Body, end: func(all []byte, err error) {
		e.Response = all
		if err != nil {
			e.Error = err.Error()
		}
		r.w.over(r.host, call, e)
	}}
	return response, nil
}

// again sends a request once more, as a proxy does that has tried twice, and drops its answer.
func (r *recorder) again(request *http.Request, body []byte) {
	second := request.Clone(request.Context())
	second.Body = io.NopCloser(bytes.NewReader(body))
	if response, err := r.inner.RoundTrip(second); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
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
	if len(words) == 3 {
		return words[0] + " " + words[2]
	}
	return strings.Join(words[:min(2, len(words))], " ")
}

// since is the world's time since its start, in nanoseconds.
func (w *World) since() int64 { return int64(time.Since(w.began)) }

// over writes an exchange down that has ended.
func (w *World) over(host, call string, e *history.Exchange) {
	w.open[call]--
	w.say(history.Line{Host: host, Kind: "exchange", Exchange: e})
}

func (w *World) say(line history.Line) {
	line.AtNS = w.since()
	w.History = append(w.History, line)
}

func (w *World) note(host, kind, text string) {
	w.say(history.Line{Host: host, Kind: kind, Text: text})
}

// Steps is the number of train steps that were acknowledged.
func (w *World) Steps() int {
	steps := 0
	for _, line := range w.History {
		if e := line.Exchange; e != nil && e.Method == "POST" && e.Path == "/api/v1/weights" && e.Status == 200 {
			steps++
		}
	}
	return steps
}

// Seconds is how long the world has lasted, in its own time.
func (w *World) Seconds() float64 { return time.Since(w.began).Seconds() }
