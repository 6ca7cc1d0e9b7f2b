package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"
)

// exchange is a request that is expected and its answer.
type exchange struct {
	// Lane is a sequence of exchanges within which order and waits count; "" is the main one.
	Lane string `json:"lane"`
	Name string `json:"name"`
	Ask  string `json:"ask"`
	To   string `json:"to"`
	// JSON, Manifest and Headers are the parts of the request that matter.
	JSON     map[string]any    `json:"json"`
	Manifest map[string]any    `json:"manifest"`
	Parts    []string          `json:"parts"`
	Headers  map[string]string `json:"headers"`
	// Again: the Idempotency-Key is that of the exchange before it in the lane.
	Again bool `json:"again"`
	// Wait bounds the time since the end of the exchange before it in the lane, or of the one named Since.
	Wait  [2]float64 `json:"wait"`
	Since string     `json:"since"`
	// Repeat: it takes place once or more.
	Repeat bool `json:"repeat"`
	// Spread are the bounds that the waits of a repeated exchange fill, all but the last, which patience cuts short.
	Spread *[2]float64 `json:"spread"`
	Answer reply       `json:"answer"`
}

type reply struct {
	Status  int                  `json:"status"`
	JSON    any                  `json:"json"`
	Text    string               `json:"text"`
	Headers map[string]string    `json:"headers"`
	Refusal string               `json:"refusal"`
	Detail  map[string]any       `json:"detail"`
	Batch   *leased              `json:"batch"`
	Model   map[string][]float32 `json:"model"`
	// Flip changes a bit of the byte that is so many from the end of the body, 1 for the last.
	Flip int `json:"flip"`
	// From leaves so many bytes of the body out, Bytes sends so many of the rest, and Break closes the connection then.
	From   int     `json:"from"`
	Bytes  int     `json:"bytes"`
	Break  bool    `json:"break"`
	AfterS float64 `json:"after_s"`
	// BodyS is waited before each of the Pieces of the body; 0 pieces are one.
	BodyS  float64 `json:"body_s"`
	Pieces int     `json:"pieces"`
	// Lost: refused, unreachable, dropped or silent.
	Lost string `json:"lost"`
}

// server answers as a script says, and notes what differs from it.
type server struct {
	t         *testing.T
	directory string

	mu        sync.Mutex
	exchanges []exchange
	taken     []int
	waits     map[int][]float64
	lanes     map[string]*lane
	ended     map[string]time.Time
	keys      map[string]bool
	began     time.Time
	closed    bool
	// cancel ends the actor's calls once a request was unexpected.
	cancel context.CancelCauseFunc
}

var errUnexpected = errors.New("the request is unexpected")

// lane is how far a sequence of exchanges is.
type lane struct {
	places []int
	next   int
	key    string
	ended  time.Time
}

func newServer(t *testing.T, exchanges []exchange, directory string) *server {
	s := &server{
		t: t, directory: directory, exchanges: exchanges, taken: make([]int, len(exchanges)), waits: map[int][]float64{},
		lanes: map[string]*lane{}, ended: map[string]time.Time{}, keys: map[string]bool{}, began: time.Now(),
	}
	for at, one := range exchanges {
		if s.lanes[one.Lane] == nil {
			s.lanes[one.Lane] = &lane{ended: s.began}
		}
		s.lanes[one.Lane].places = append(s.lanes[one.Lane].places, at)
	}
	return s
}

func (s *server) client() *http.Client { return &http.Client{Transport: s} }

// over checks that every exchange has taken place.
func (s *server) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for at, one := range s.exchanges {
		if s.taken[at] == 0 {
			s.t.Errorf("exchange %d (%s) has not taken place", at, one.Ask)
		}
		if waits := s.waits[at]; one.Spread != nil && !spread(waits[:max(len(waits)-1, 0)], *one.Spread) {
			s.t.Errorf("exchange %d (%s): waits %v do not spread over %v s", at, one.Ask, waits, *one.Spread)
		}
	}
}

// spread reports that waits lie within bounds and fill them.
func spread(waits []float64, bounds [2]float64) bool {
	if len(waits) < 20 {
		return false
	}
	least, most, width := slices.Min(waits), slices.Max(waits), bounds[1]-bounds[0]
	return least >= bounds[0] && least < bounds[0]+width/4 && most > bounds[1]-width/4 && most <= bounds[1]
}

// RoundTrip answers a request.
func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		read, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		body = read
	}
	place, found := s.expect(request, body)
	if !found {
		return nil, errUnexpected
	}
	end := func() { s.end(place) }
	response, err := s.answer(request, s.exchanges[place].Answer, end)
	if err != nil {
		end()
	}
	return response, err
}

// expect finds the exchange of a request, and checks it.
func (s *server) expect(request *http.Request, body []byte) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := request.Method + " " + request.URL.RequestURI()
	for at, one := range s.exchanges {
		lane := s.lanes[one.Lane]
		if lane.next >= len(lane.places) || lane.places[lane.next] != at || one.Ask != asked || !s.labelled(one, request) {
			continue
		}
		s.check(at, request, body)
		s.taken[at]++
		if !one.Repeat {
			lane.next++
		}
		return at, true
	}
	if !s.closed {
		s.t.Errorf("%v: unexpected: %s at %s: %.300s", time.Since(s.began), asked, request.URL.Host, body)
	}
	s.cancel(errUnexpected)
	return 0, false
}

// labelled reports that a request has the exchange's headers, which tell lanes with like paths apart.
func (s *server) labelled(one exchange, request *http.Request) bool {
	for name, value := range one.Headers {
		if request.Header.Get(name) != value {
			return false
		}
	}
	return true
}

func (s *server) check(at int, request *http.Request, body []byte) {
	one := s.exchanges[at]
	lane := s.lanes[one.Lane]
	wrong := func(format string, values ...any) {
		s.t.Errorf("exchange %d (%s), at %v: %s", at, one.Ask, time.Since(s.began), fmt.Sprintf(format, values...))
	}
	since := lane.ended
	if one.Since != "" {
		since = s.ended[one.Since]
	}
	if waited := time.Since(since); !within(waited, one.Wait) {
		wrong("comes after %v, want %v s", waited, one.Wait)
	} else {
		s.waits[at] = append(s.waits[at], waited.Seconds())
	}
	if one.To != "" && "http://"+request.URL.Host != one.To {
		wrong("goes to %s, want %s", request.URL.Host, one.To)
	}
	if request.Method != http.MethodGet {
		key := request.Header.Get("Idempotency-Key")
		switch {
		case !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(key):
			wrong("the Idempotency-Key is %q", key)
		case one.Again && key != lane.key:
			wrong("the Idempotency-Key is not that of the try before")
		case !one.Again && s.keys[key]:
			wrong("the Idempotency-Key has been used before")
		}
		lane.key, s.keys[key] = key, true
	}
	if one.JSON != nil {
		var said any
		if err := json.Unmarshal(body, &said); err != nil || !alike(s.named(one.JSON), said) {
			wrong("says %.500s, want %v", body, one.JSON)
		}
		if kind := request.Header.Get("Content-Type"); kind != "application/json" {
			wrong("is of type %s", kind)
		}
	}
	if one.Manifest != nil {
		if err := manifest(request, body, one.Manifest, one.Parts); err != nil {
			wrong("%v", err)
		}
	}
}

// named has the name of the test's directory in the place of $DIR.
func (s *server) named(want map[string]any) map[string]any {
	want = maps.Clone(want)
	for key, value := range want {
		if value == "$DIR" {
			want[key] = s.directory
		}
	}
	return want
}

// manifest checks a publish: what the manifest says, and that the files are as it says.
func manifest(request *http.Request, body []byte, want map[string]any, names []string) error {
	_, parameters, err := mime.ParseMediaType(request.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	if request.ContentLength != int64(len(body)) {
		return fmt.Errorf("the length is said to be %d, and is %d", request.ContentLength, len(body))
	}
	reader := multipart.NewReader(bytes.NewReader(body), parameters["boundary"])
	files, listed := map[string][]byte{}, []string{}
	for {
		part, err := reader.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return err
		}
		files[part.FormName()], listed = content, append(listed, part.FormName())
	}
	if !slices.Equal(listed, append([]string{"manifest"}, names...)) {
		return fmt.Errorf("the parts are %v, want the manifest and %v", listed, names)
	}
	var said struct {
		Files []struct {
			Name, Hash string
			Size       int
		}
	}
	var whole any
	if err := errors.Join(json.Unmarshal(files["manifest"], &said), json.Unmarshal(files["manifest"], &whole)); err != nil {
		return err
	}
	for at, file := range said.Files {
		content := files[file.Name]
		if at >= len(names) || file.Name != names[at] || file.Size != len(content) || file.Hash != digest(content) {
			return fmt.Errorf("file %d of the manifest is %+v, and its part has %d bytes", at, file, len(content))
		}
		if _, _, err := decode(content, file.Name); err != nil {
			return err
		}
	}
	if !alike(want, whole) {
		return fmt.Errorf("the manifest is %s, want %v", files["manifest"], want)
	}
	return nil
}

func (s *server) end(at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.exchanges[at]
	s.lanes[one.Lane].ended = time.Now()
	if one.Name != "" {
		s.ended[one.Name] = time.Now()
	}
}

// answer sends an answer, or fails as a connection does.
func (s *server) answer(request *http.Request, said reply, end func()) (*http.Response, error) {
	ctx := request.Context()
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	switch said.Lost {
	case "refused":
		return nil, dial(errors.New("connection refused"))
	case "unreachable":
		httptrace.ContextClientTrace(ctx).ConnectStart("tcp", request.URL.Host)
		<-ctx.Done()
		return nil, dial(ctx.Err())
	case "silent":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := rest(ctx, seconds(said.AfterS)); err != nil {
		return nil, err
	}
	if said.Lost == "dropped" {
		return nil, io.ErrUnexpectedEOF
	}
	response := &http.Response{
		StatusCode: said.Status, Header: http.Header{}, Request: request, ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
	}
	if response.StatusCode == 0 {
		response.StatusCode = 200
	}
	for name, value := range said.Headers {
		response.Header.Set(name, value)
	}
	response.Body = &answering{ctx: ctx, said: said, left: s.flipped(said)[said.From:], end: end}
	return response, nil
}

func (s *server) flipped(said reply) []byte {
	body := s.body(said)
	if said.Flip > 0 {
		body[len(body)-said.Flip] ^= 1
	}
	return body
}

func (s *server) body(said reply) []byte {
	var value any
	switch {
	case said.Text != "":
		return []byte(said.Text)
	case said.Batch != nil:
		return said.Batch.body(s.t)
	case said.Model != nil:
		return encode(tensorsOf(said.Model), nil)
	case said.Refusal != "":
		value = map[string]any{"error": map[string]any{"code": said.Refusal, "message": "it is refused", "detail": said.Detail}}
	case said.JSON != nil:
		value = said.JSON
	default:
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		s.t.Error(err)
	}
	return text
}

// answering is the body of an answer. It ends the exchange with its last byte.
type answering struct {
	ctx  context.Context
	said reply
	left []byte
	sent int
	// piece counts those that have been sent.
	piece int
	end   func()
	done  bool
}

func (a *answering) Read(into []byte) (int, error) {
	left := a.left
	if a.said.Bytes > 0 {
		left = left[:min(len(left), max(a.said.Bytes-a.sent, 0))]
	}
	if pieces := max(a.said.Pieces, 1); a.piece < pieces {
		a.piece++
		if err := rest(a.ctx, seconds(a.said.BodyS)); err != nil {
			return a.over(err)
		}
		left = left[:(len(left)+pieces-a.piece)/(pieces-a.piece+1)]
	}
	if len(left) == 0 && a.said.Break {
		return a.over(io.ErrUnexpectedEOF)
	}
	if len(left) == 0 {
		return a.over(io.EOF)
	}
	n := copy(into, left)
	a.left, a.sent = a.left[n:], a.sent+n
	return n, nil
}

func (a *answering) over(err error) (int, error) {
	if !a.done {
		a.done = true
		a.end()
	}
	return 0, err
}

func (a *answering) Close() error {
	_, _ = a.over(nil)
	return nil
}

// rest returns after d, or with the context's error.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return &url.Error{Op: "Read", Err: ctx.Err()}
	}
}

func sorted[V any](named map[string]V) []string { return slices.Sorted(maps.Keys(named)) }
