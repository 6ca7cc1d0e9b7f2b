package tinker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// sdkVersion is the release of Tinker's own client whose requests these are.
	sdkVersion = "0.38.0"
	// heartbeatEvery is what Tinker's client keeps to.
	heartbeatEvery = 10 * time.Second
)

// Session is a client's stay at a service, kept alive by heartbeats until it is closed. It is safe for
// concurrent use. Where the service has forgotten the session, it is begun anew: samplers go on by the paths
// that they have, models are broken.
type Session struct {
	c      *connection
	limits limits

	ctx  context.Context // ends with Close
	end  context.CancelFunc
	live sync.WaitGroup // the heartbeats and what tells the service to stop

	mu       sync.Mutex
	id       string
	age      int // how often the session was begun anew
	models   int // made in this session
	samplers int
	encoding encoding
	numbers  knowledge
	deaf     bool // the service knows no cancel_future
	closed   bool

	renewing chan struct{} // held by who begins the session anew
}

// limits of one forward_backward.
type limits struct {
	MostData  int `json:"fwdbwd_max_chunk_len"`
	MostBytes int `json:"fwdbwd_max_chunk_bytes_count"`
}

// Open begins a session. It returns an error that wraps ErrDown where nothing answers. The error wraps ErrRefused where
// the server that answers is no such service or refuses the key.
func Open(ctx context.Context, o Options) (*Session, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open a session of Tinker's API: %w", err)
	}
	s := &Session{c: newConnection(o), limits: limits{1024, 5_000_000}, renewing: make(chan struct{}, 1)}
	if err := s.begin(ctx); err != nil {
		s.c.close()
		if errors.Is(err, ErrGone) { // a path of the API that a server does not have
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return nil, fmt.Errorf("open a session of Tinker's API at %s: %w", o.URL, err)
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.live.Go(s.beat)
	return s, nil
}

// begin asks for the service's limits and for a session.
func (s *Session) begin(ctx context.Context) error {
	given := s.limits
	if err := s.c.askJSON(ctx, "client/config", map[string]any{"sdk_version": sdkVersion}, &given); err != nil {
		return err
	}
	if given.MostData > 0 {
		s.limits.MostData = given.MostData
	}
	if given.MostBytes > 0 {
		s.limits.MostBytes = given.MostBytes
	}
	id, err := s.create(ctx)
	s.id = id
	return err
}

func (s *Session) create(ctx context.Context) (string, error) {
	body := map[string]any{"tags": []string{}, "user_metadata": nil, "sdk_version": sdkVersion, "type": "create_session"}
	if s.c.o.Name != "" {
		body["user_metadata"] = map[string]string{"run": s.c.o.Name}
	}
	var made struct {
		ID string `json:"session_id"`
	}
	if err := s.c.askJSON(ctx, "create_session", body, &made); err != nil {
		return "", err
	}
	if made.ID == "" {
		return "", fmt.Errorf("%w: create_session: the answer has no session_id", ErrRefused)
	}
	return made.ID, nil
}

// ID is the session's at the service; another once the service has forgotten the first.
func (s *Session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// stay is the session's id, and its age, by which others notice that it was begun anew.
func (s *Session) stay() (id string, age int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.age
}

// Bases are the base models that the service names.
func (s *Session) Bases(ctx context.Context) ([]string, error) {
	a, err := s.c.ask(ctx, call{operation: "get_server_capabilities", path: "get_server_capabilities", method: http.MethodGet})
	if err != nil {
		return nil, err
	}
	var said struct {
		Models []struct {
			Name string `json:"model_name"`
		} `json:"supported_models"`
	}
	if err := readJSON("get_server_capabilities", a, &said); err != nil {
		return nil, err
	}
	var names []string
	for _, m := range said.Models {
		names = append(names, m.Name)
	}
	return names, nil
}

// Close ends the heartbeats; the service forgets the session later.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.live.Wait()
	s.c.close()
	return nil
}

// beat sends heartbeats until the session is closed.
func (s *Session) beat() {
	for {
		var p pause
		if p.wait(s.ctx, heartbeatEvery) != nil {
			return
		}
		id, age := s.stay()
		gone, err := s.heartbeat(s.ctx, id)
		if s.ctx.Err() != nil {
			return
		}
		if gone {
			err = s.renew(s.ctx, age)
		}
		if err != nil && s.ctx.Err() == nil {
			s.c.o.Logf("the heartbeat of session %s fails: %v", id, err)
		}
	}
}

// heartbeat sends one; gone says that the service does not know the session.
func (s *Session) heartbeat(ctx context.Context, id string) (gone bool, err error) {
	l, err := jsonCall("session_heartbeat", map[string]string{"session_id": id, "type": "session_heartbeat"})
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatEvery)
	defer cancel()
	a, _, err := s.c.try(ctx, l)
	if err != nil {
		return false, err
	}
	if a.status >= 300 {
		err = refusal(l.operation, a)
	}
	return errors.Is(err, ErrGone), err
}

// renew begins the session anew unless somebody else has since it had the age given.
func (s *Session) renew(ctx context.Context, age int) error {
	select {
	case s.renewing <- struct{}{}:
		defer func() { <-s.renewing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	old, now := s.stay()
	if now != age {
		return nil
	}
	id, err := s.create(ctx)
	if err != nil {
		return fmt.Errorf("begin session %s anew, which the service has forgotten: %w", old, err)
	}
	s.mu.Lock()
	s.id, s.age, s.models, s.samplers = id, s.age+1, 0, 0
	s.encoding, s.numbers, s.deaf = unprobed, untried, false // it may be another release that has started
	s.mu.Unlock()
	s.c.o.Logf("the service has forgotten session %s: it is now %s, and models of the old one are broken", old, id)
	return nil
}

// revive begins the session anew if the service says that it has forgotten it, and reports whether it is another
// than the one of that age.
func (s *Session) revive(ctx context.Context, age int) (another bool, err error) {
	id, now := s.stay()
	if now != age {
		return true, nil
	}
	gone, err := s.heartbeat(ctx, id)
	if !gone {
		return false, err
	}
	return true, s.renew(ctx, age)
}

// Delete deletes the state that was saved under a path; a path that is not there counts as deleted. An error wraps
// errors.ErrUnsupported where the service deletes nothing.
func (s *Session) Delete(ctx context.Context, path string) error {
	run, checkpoint, err := splitPath(path)
	if err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	_, err = s.c.ask(ctx, call{
		operation: "delete checkpoint", method: http.MethodDelete,
		path: "training_runs/" + url.PathEscape(run) + "/checkpoints/" + checkpoint,
	})
	return deleted(path, err)
}

// deleted reads the answer to a deletion. A server without the path of the API answers 404 or 405 as any web
// server does; one that has it says of what it has not found.
func deleted(path string, err error) error {
	said, is := errors.AsType[*Error](err)
	if !is {
		return err
	}
	switch {
	case said.Status == http.StatusMethodNotAllowed, said.Status == http.StatusNotImplemented,
		said.Status == http.StatusNotFound && isBare(said.Detail):
		return fmt.Errorf("delete %s: %w: %w", path, errors.ErrUnsupported, err)
	case errors.Is(err, ErrGone):
		return nil
	}
	return err
}

// isBare says whether a refusal names nothing, as that of a web server that knows no such path.
func isBare(detail string) bool {
	return detail == "" || detail == "Not Found" || strings.HasPrefix(detail, "404 page not found") || strings.HasPrefix(detail, "<")
}

// splitPath takes tinker://run/kind/name apart, where a server may leave out the kind of what samples.
func splitPath(path string) (run, checkpoint string, err error) {
	rest, ok := strings.CutPrefix(path, "tinker://")
	run, name, found := strings.Cut(rest, "/")
	if !ok || !found || run == "" || name == "" {
		return "", "", fmt.Errorf("want tinker://RUN/weights/NAME or tinker://RUN/sampler_weights/NAME")
	}
	parts := strings.Split(name, "/")
	if len(parts) == 1 {
		parts = []string{"sampler_weights", parts[0]}
	}
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return run, strings.Join(parts, "/"), nil
}
