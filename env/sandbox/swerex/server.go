package swerex

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/pause"
)

//go:embed supervise.py
var supervise string

// launch starts supervise.py with the Python that the server itself runs on, wherever that is.
const launch = `python=$(readlink /proc/$PPID/exe) || python=python3; exec "$python" -I -S -c "$0" "$@"`

// Sizes of requests. One argument may have 128 KiB on Linux; what is larger than inline is uploaded.
const (
	argument = 96 << 10
	inline   = 256 << 10
	// answerMost bounds what a server answers: what may be read of a file, in base64.
	answerMost = 512 << 20
)

// attempts of a request that no answer came to. Requests may be repeated: see supervise.py.
const attempts = 3

// Times in which a server is to answer. askTime is for what it does at once, makeTime for boxes that begin and end, useTime for
// what it does with a box beside what a command takes. A server that was silent for that long is not asked for a box for
// silentFor, and then first whether it lives.
const (
	askTime   = 10 * time.Second
	makeTime  = 20 * time.Second
	useTime   = 90 * time.Second
	silentFor = time.Minute
)

// server is one swerex-remote.
type server struct {
	url, key, store string
	// askTime and makeTime are those of all servers, or less.
	askTime, makeTime time.Duration
	// silent is when it may be asked for boxes again, in Unix nanoseconds; 0 where it has answered the last request.
	silent atomic.Int64
}

// ready reports whether the server is to be asked for a box.
func (s *server) ready(ctx context.Context) bool {
	until := s.silent.Load()
	if until == 0 {
		return true
	}
	if time.Now().UnixNano() < until {
		return false
	}
	var alive struct{}
	return s.get(ctx, "/is_alive", &alive) == nil
}

// within bounds one request, by what it is for; heard takes whether it was answered.
func (s *server) within(ctx context.Context, limit time.Duration) (asking context.Context, heard func(err error)) {
	asking, cancel := context.WithTimeout(ctx, limit)
	return asking, func(err error) {
		switch {
		case err == nil:
			s.silent.Store(0)
		case errors.Is(asking.Err(), context.DeadlineExceeded):
			s.silent.Store(time.Now().Add(silentFor).UnixNano())
		}
		cancel()
	}
}

// request is what supervise.py is asked for; its Verb decides which fields it has.
type request struct {
	Verb  string     `json:"verb"`
	Store string     `json:"store"`
	ID    sandbox.ID `json:"id,omitempty"`
	Link  string     `json:"link,omitempty"`
	// make
	Nonce string `json:"nonce,omitempty"`
	Boxes int    `json:"boxes,omitempty"`
	// run
	Job       string      `json:"job,omitempty"`
	Argv      [][]byte    `json:"argv,omitempty"`
	Env       [][2][]byte `json:"env,omitempty"`
	Dir       []byte      `json:"dir,omitempty"`
	Stdin     []byte      `json:"stdin,omitempty"`
	Time      float64     `json:"time,omitempty"` // seconds
	Wait      float64     `json:"wait"`           // seconds
	Output    int64       `json:"output,omitempty"`
	Memory    int64       `json:"memory,omitempty"`
	Processes int         `json:"processes,omitempty"`
	Disk      int64       `json:"disk,omitempty"`
	// read, write, restore. From is an uploaded file in place of Content or Stdin.
	Path    []byte `json:"path,omitempty"`
	Limit   int64  `json:"limit"`
	Mode    uint32 `json:"mode"`
	Content []byte `json:"content,omitempty"`
	From    string `json:"from,omitempty"`
}

// reply is what supervise.py says.
type reply struct {
	Error, Message string
	Absent         bool
	Boxes          []string
	Content        []byte
	// Running is the file that the result of a command will be in.
	Running string
	Exit    int
	Signal  string
	Limit   sandbox.Class
	Wall    float64
	CPU     float64
	Memory  int64
	Stdout  []byte
	Stderr  []byte
	OutCut  bool `json:"stdout_cut"`
	ErrCut  bool `json:"stderr_cut"`
}

// ask has supervise.py do something for a box.
func (s *server) ask(ctx context.Context, op string, id sandbox.ID, r request) (reply, error) {
	r.Store = s.store
	if r.Dir == nil {
		r.Dir = []byte(sandbox.Work)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return reply{}, sandbox.Fail(sandbox.Refused, op, id, "%w", err)
	}
	command := []string{"/bin/sh", "-c", launch, supervise}
	encoded := base64.StdEncoding.EncodeToString(text)
	for len(encoded) > argument {
		command = append(command, encoded[:argument])
		encoded = encoded[argument:]
	}
	command = append(command, encoded)
	var done struct {
		Stdout, Stderr string
		ExitCode       *int `json:"exit_code"`
	}
	body := map[string]any{"command": command, "shell": false, "timeout": 60 + r.Wait}
	limit := s.askTime
	switch {
	case gone(op) == sandbox.Lost:
		limit = useTime + time.Duration(r.Wait*float64(time.Second))
	case op == "create" || op == "destroy" || op == "close":
		limit = s.makeTime
	}
	if err := s.post(ctx, op, id, "/execute", limit, body, &done); err != nil {
		return reply{}, err
	}
	var a reply
	if err := json.Unmarshal([]byte(done.Stdout), &a); err != nil {
		return reply{}, sandbox.Fail(sandbox.Protocol, op, id, "%s: no answer from supervise.py: %.300q, stderr %.2000q", s.url, done.Stdout, done.Stderr)
	}
	return a, a.failure(op, id)
}

// failure is the error that an answer is, nil for none.
func (a reply) failure(op string, id sandbox.ID) error {
	switch a.Error {
	case "":
		return nil
	case "missing":
		return &fs.PathError{Op: op, Path: a.Message, Err: fs.ErrNotExist}
	case "invalid":
		return &fs.PathError{Op: op, Path: a.Message, Err: fs.ErrInvalid}
	case "large":
		return fmt.Errorf("swerex: %s: %w", a.Message, sandbox.ErrTooLarge)
	}
	class, known := map[string]sandbox.Class{
		"lost": sandbox.Lost, "exists": sandbox.Refused, "full": sandbox.Quota, "start": sandbox.StartFailed, "refused": sandbox.Refused, "failed": sandbox.Refused, "disk": sandbox.Disk, "supervisor": sandbox.Lost,
	}[a.Error]
	if !known {
		class = sandbox.Protocol
	}
	return sandbox.Fail(class, op, id, "%s", a.Message)
}

// post sends a request until there is an answer. All attempts have one X-Request-ID: a server that has
// answered the last one answers it again without doing it again.
func (s *server) post(ctx context.Context, op string, id sandbox.ID, path string, limit time.Duration, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return sandbox.Fail(sandbox.Refused, op, id, "%w", err)
	}
	return s.send(ctx, op, id, path, limit, "application/json", text, into)
}

func (s *server) send(ctx context.Context, op string, id sandbox.ID, path string, limit time.Duration, kind string, body []byte, into any) error {
	name := rand.Text()
	var failed error
	for attempt := range attempts {
		if attempt > 0 {
			_ = pause.For(ctx, 100*time.Millisecond<<attempt)
		}
		again := false
		asking, heard := s.within(ctx, limit)
		again, failed = s.once(asking, op, id, path, kind, name, body, into)
		silent := asking.Err() != nil
		heard(failed)
		if !again || silent {
			break
		}
	}
	if cause := ctx.Err(); failed != nil && cause != nil {
		return fmt.Errorf("swerex: %s %s: %w", op, id, cause)
	}
	return failed
}

// once sends a request; again says that nobody answered it.
func (s *server) once(ctx context.Context, op string, id sandbox.ID, path, kind, name string, body []byte, into any) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		return false, sandbox.Fail(sandbox.Refused, op, id, "%w", err)
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("X-API-Key", s.key)
	request.Header.Set("X-Request-ID", name)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return true, sandbox.Fail(gone(op), op, id, "no answer from the SWE-ReX server: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMost))
	if err != nil {
		return true, sandbox.Fail(gone(op), op, id, "%s%s: half an answer: %w", s.url, path, err)
	}
	switch status := response.StatusCode; {
	case status == http.StatusOK:
		if err := json.Unmarshal(text, into); err != nil {
			return false, sandbox.Fail(sandbox.Protocol, op, id, "%s%s answered %.200q: %w", s.url, path, text, err)
		}
		return false, nil
	case status == http.StatusNetworkAuthenticationRequired: // 511: the exception that was raised there
		return false, exception(op, id, text)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return false, sandbox.Fail(sandbox.Refused, op, id, "%s does not take the key (its --auth-token)", s.url)
	case status == http.StatusTooManyRequests:
		return false, sandbox.Fail(sandbox.Quota, op, id, "%s%s: HTTP 429: %.300s", s.url, path, text)
	case status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout:
		return true, sandbox.Fail(gone(op), op, id, "%s%s: HTTP %d: %.300s", s.url, path, status, text)
	case status >= 500:
		return false, sandbox.Fail(gone(op), op, id, "%s%s: HTTP %d: %.300s (a wrong key looks like this, too)", s.url, path, status, text)
	default:
		return false, sandbox.Fail(sandbox.Protocol, op, id, "%s%s: HTTP %d: %.300s", s.url, path, status, text)
	}
}

// gone is the class of a server that does not answer: to who makes boxes and to who uses one.
func gone(op string) sandbox.Class {
	switch op {
	case "run", "read", "write", "reset", "snapshot", "restore":
		return sandbox.Lost
	}
	return sandbox.BackendDown
}

// errException is what a server raised: class_path of Python's exception, and its message.
type errException struct{ path, message string }

func (e *errException) Error() string { return e.path + ": " + e.message }

// exception is the error of an answer of status 511.
func exception(op string, id sandbox.ID, text []byte) error {
	var a struct {
		Exception struct {
			Message string
			Path    string `json:"class_path"`
		} `json:"swerexception"`
	}
	if err := json.Unmarshal(text, &a); err != nil || a.Exception.Path == "" {
		return sandbox.Fail(sandbox.Protocol, op, id, "HTTP 511 with %.200q, expected an exception of SWE-ReX", text)
	}
	raised := &errException{a.Exception.Path, a.Exception.Message}
	class := sandbox.StartFailed
	switch raised.path {
	case "swerex.exceptions.CommandTimeoutError":
		class = sandbox.StartTimeout
	case "swerex.exceptions.SessionDoesNotExistError", "swerex.exceptions.SessionNotInitializedError", "swerex.exceptions.DeploymentNotStartedError":
		class = sandbox.Lost
	case "builtins.BlockingIOError", "builtins.MemoryError":
		class = sandbox.Quota // no process or memory is left on the server
	case "builtins.FileNotFoundError":
		return &fs.PathError{Op: op, Path: raised.message, Err: errors.Join(fs.ErrNotExist, raised)}
	}
	return sandbox.Fail(class, op, id, "%w", raised)
}

// upload brings bytes to the server as they are, and returns where.
func (s *server) upload(ctx context.Context, op string, id sandbox.ID, content []byte) (string, error) {
	target := fmt.Sprintf("%s/%s/upload-%s", s.store, id, rand.Text())
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "content")
	if err != nil {
		return "", err
	}
	_, _ = file.Write(content) // to memory
	_ = form.WriteField("target_path", target)
	_ = form.WriteField("unzip", "false")
	_ = form.Close()
	var done struct{}
	return target, s.send(ctx, op, id, "/upload", useTime, form.FormDataContentType(), body.Bytes(), &done)
}

func (s *server) make(ctx context.Context, id sandbox.ID, nonce string, boxes int, link string) error {
	_, err := s.ask(ctx, "create", id, request{Verb: "make", ID: id, Nonce: nonce, Boxes: boxes, Link: link})
	return err
}

// undo removes what a box's creation left that was given up. It has its own time: the caller's is over.
func (s *server) undo(ctx context.Context, id sandbox.ID, link string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	_, _ = s.ask(ctx, "destroy", id, request{Verb: "destroy", ID: id, Link: link}) // else the pool finds it by its owner
}

// check asks a server whether it lives, whether it has what is asked of it, and whether boxes can be
// made there.
func (s *server) check(ctx context.Context) error {
	var alive struct {
		Alive   bool `json:"is_alive"`
		Message string
	}
	if err := s.get(ctx, "/is_alive", &alive); err != nil {
		return err
	}
	if !alive.Alive {
		return sandbox.Fail(sandbox.BackendDown, "check", "", "%s says that it is not alive: %s", s.url, alive.Message)
	}
	var api struct{ Paths map[string]json.RawMessage }
	if err := s.get(ctx, "/openapi.json", &api); err != nil {
		return err
	}
	for _, path := range []string{"/execute", "/upload", "/read_file"} {
		if _, has := api.Paths[path]; !has {
			return sandbox.Fail(sandbox.Protocol, "check", "", "%s has no %s: expected a server of SWE-ReX 1.0 or later", s.url, path)
		}
	}
	_, err := s.ask(ctx, "check", "", request{Verb: "probe"})
	return err
}

func (s *server) get(ctx context.Context, path string, into any) (err error) {
	ctx, heard := s.within(ctx, s.askTime)
	defer func() { heard(err) }()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return sandbox.Fail(sandbox.Refused, "check", "", "%w", err)
	}
	request.Header.Set("X-API-Key", s.key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return sandbox.Fail(sandbox.BackendDown, "check", "", "no answer from the SWE-ReX server: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return sandbox.Fail(sandbox.BackendDown, "check", "", "%s%s: %w", s.url, path, err)
	}
	switch {
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return sandbox.Fail(sandbox.Refused, "check", "", "%s does not take the key (its --auth-token)", s.url)
	case response.StatusCode >= 500:
		return sandbox.Fail(sandbox.BackendDown, "check", "", "%s%s: HTTP %d: %.300s (a wrong key looks like this, too)", s.url, path, response.StatusCode, text)
	case response.StatusCode != http.StatusOK:
		return sandbox.Fail(sandbox.Protocol, "check", "", "%s%s: HTTP %d: is this a SWE-ReX server?", s.url, path, response.StatusCode)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return sandbox.Fail(sandbox.Protocol, "check", "", "%s%s answered %.200q: %w", s.url, path, text, err)
	}
	return nil
}
