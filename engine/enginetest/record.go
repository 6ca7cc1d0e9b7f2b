package enginetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"time"
)

// keptHeaders of an answer are those that a client reads; the rest names machines and times.
var keptHeaders = []string{"Content-Type", "Retry-After"}

// Recorder is a server in front of another that keeps what is said.
type Recorder struct {
	front *httptest.Server
	to    string
	http  *http.Client
	now   func() time.Time

	observe func(Exchange)
	born    time.Time

	mu        sync.Mutex
	exchanges []*Exchange
	// open is how many answers are under way, settled is signalled when none is.
	open    int
	settled *sync.Cond
}

// NewRecorder returns a recorder in front of the server at an address, on a free port of this
// machine. It calls observe, if not nil, with every exchange once it has ended, by any goroutine.
func NewRecorder(to string, observe func(Exchange)) *Recorder {
	r := &Recorder{to: strings.TrimRight(to, "/"), http: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256}}, now: time.Now, born: time.Now(), observe: observe}
	r.settled = sync.NewCond(&r.mu)
	r.front = httptest.NewServer(http.HandlerFunc(r.serve))
	return r
}

// URL is the recorder's own address.
func (r *Recorder) URL() string { return r.front.URL }

// Close ends the recorder and cuts running streams off.
func (r *Recorder) Close() {
	r.front.CloseClientConnections()
	r.front.Close()
	r.http.CloseIdleConnections()
}

// Now is the time since the recorder was started, as in Exchange.At.
func (r *Recorder) Now() time.Duration { return r.now().Sub(r.born) }

// Settle waits until no answer is under way and returns all exchanges there were. A client that
// leaves ends its answers, if a little later.
func (r *Recorder) Settle() []Exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.open > 0 {
		r.settled.Wait()
	}
	all := make([]Exchange, len(r.exchanges))
	for i, e := range r.exchanges {
		all[i] = *e
	}
	return all
}

// Transcript is what has been said so far, with these notes; answers that have not ended are left out.
func (r *Recorder) Transcript(notes ...string) *Transcript {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &Transcript{Notes: notes}
	for _, e := range r.exchanges {
		if e.End != "" {
			t.Exchanges = append(t.Exchanges, *e)
		}
	}
	return t
}

func (r *Recorder) serve(w http.ResponseWriter, req *http.Request) {
	began := r.now()
	e := &Exchange{Method: req.Method, Path: req.URL.RequestURI(), At: began.Sub(r.born), Header: http.Header{}}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	if len(body) > 0 {
		e.Body = body
	}
	r.mu.Lock()
	r.exchanges = append(r.exchanges, e)
	r.open++
	r.mu.Unlock()
	pieces, end := r.pass(w, req, e, began)
	r.mu.Lock()
	e.Pieces, e.End = pieces, end
	done := *e
	if r.open--; r.open == 0 {
		r.settled.Broadcast()
	}
	r.mu.Unlock()
	if r.observe != nil {
		r.observe(done)
	}
	if end == EndCut {
		panic(http.ErrAbortHandler) // the client is to see the connection break as it broke here
	}
}

// pass asks the server and hands its answer on as it comes.
func (r *Recorder) pass(w http.ResponseWriter, req *http.Request, e *Exchange, began time.Time) ([]Piece, End) {
	res, err := forward(r.http, r.to, req, e.Body)
	if err != nil {
		return nil, endOf(req.Context())
	}
	defer res.Body.Close()
	r.mu.Lock()
	e.Status = res.StatusCode
	for _, name := range keptHeaders {
		if value := res.Header.Get(name); value != "" {
			e.Header.Set(name, value)
			w.Header().Set(name, value)
		}
	}
	stream := e.Stream()
	r.mu.Unlock()
	w.WriteHeader(res.StatusCode)
	var pieces []Piece
	err = eachPiece(res.Body, stream, func(data []byte) error {
		pieces = append(pieces, Piece{After: r.now().Sub(began), Data: data})
		_, err := w.Write(data)
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		return err
	})
	if err != nil {
		return pieces, endOf(req.Context())
	}
	return pieces, EndRegular
}

// endOf says who broke an answer off.
func endOf(ctx context.Context) End {
	if ctx.Err() != nil {
		return EndClient
	}
	return EndCut
}

// forward sends a request that was received, with its body, to another server.
func forward(client *http.Client, to string, req *http.Request, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(req.Context(), req.Method, to+req.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header = req.Header.Clone()
	out.Header.Del("Connection")
	return client.Do(out)
}

// eachPiece calls take with the events of a stream as they come, each with the blank line that
// ends it, or with a whole body. What stands behind the last event is a piece as well.
func eachPiece(body io.Reader, stream bool, take func([]byte) error) error {
	if !stream {
		data, err := io.ReadAll(body)
		if len(data) > 0 {
			err = errors.Join(take(data), err)
		}
		return err
	}
	var held []byte
	buffer := make([]byte, 32<<10)
	for {
		n, err := body.Read(buffer)
		held = append(held, buffer[:n]...)
		for {
			end := eventEnd(held)
			if end < 0 {
				break
			}
			if err := take(bytes.Clone(held[:end])); err != nil {
				return err
			}
			held = held[end:]
		}
		if err != nil {
			if len(held) > 0 {
				err = errors.Join(take(bytes.Clone(held)), err)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// eventEnd is where the first event ends, -1 where none is whole.
func eventEnd(data []byte) int {
	end := -1
	for _, blank := range []string{"\n\n", "\r\n\r\n"} {
		if i := bytes.Index(data, []byte(blank)); i >= 0 && (end < 0 || i+len(blank) < end) {
			end = i + len(blank)
		}
	}
	return end
}

// scrubbed are the parts of recordings that differ from one run to the next and mean nothing to a client.
var scrubbed = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`"created": ?\d+`), `"created":0`},
	{regexp.MustCompile(`\b(127\.0\.0\.1|localhost):\d+`), "server"},
}

// Scrub takes out the texts that a recording must not have: times, addresses, and every given text.
// A given text is replaced by its partner (a directory of this machine by a short name, say).
func (t *Transcript) Scrub(replace map[string]string) {
	clean := func(data []byte) []byte {
		if data == nil {
			return nil
		}
		for from, to := range replace {
			data = bytes.ReplaceAll(data, []byte(from), []byte(to))
		}
		for _, s := range scrubbed {
			data = s.pattern.ReplaceAll(data, []byte(s.with))
		}
		return data
	}
	for i := range t.Exchanges {
		e := &t.Exchanges[i]
		e.Path, e.Body = string(clean([]byte(e.Path))), clean(e.Body)
		for j := range e.Pieces {
			e.Pieces[j].Data = clean(e.Pieces[j].Data)
		}
	}
}
