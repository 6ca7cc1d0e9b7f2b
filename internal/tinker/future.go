package tinker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// taken is what a service answers to a long operation that it has accepted.
type taken struct {
	RequestID string `json:"request_id"`
	ModelID   string `json:"model_id"` // of create_model, where the service says it at once
}

// submit sends a long operation until the service has accepted it.
func (c *connection) submit(ctx context.Context, l call) (taken, error) {
	a, err := c.ask(ctx, l)
	if err != nil {
		return taken{}, err
	}
	var t taken
	if err := readJSON(l.operation, a, &t); err != nil {
		return taken{}, fmt.Errorf("%w: %w", errUnknown, err)
	}
	if t.RequestID == "" {
		return taken{}, fmt.Errorf("%w: %s: the answer has no request_id: %s", errUnknown, l.operation, shortened(string(a.body)))
	}
	return t, nil
}

// await polls an accepted operation until it has a result or failed. mediaType is what the result should be in, where
// the service has a choice; the answer says in its content type what it is in.
func (c *connection) await(ctx context.Context, operation string, t taken, mediaType string) (answer, error) {
	body, err := json.Marshal(map[string]string{"request_id": t.RequestID})
	if err != nil {
		return answer{}, fmt.Errorf("%s: write the request: %w", operation, err)
	}
	l := call{operation: operation, path: "retrieve_future", body: body, accept: mediaType}
	p := poll{c: c, operation: operation}
	for {
		asked := time.Now()
		a, _, err := c.try(ctx, l)
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		done, err := p.judge(a, err)
		if err != nil || done {
			return a, err
		}
		if err := p.rest(ctx, a, asked); err != nil {
			return answer{}, err
		}
	}
}

// poll is what has become of the polls of one future.
type poll struct {
	c         *connection
	operation string
	pause     pause
	troubled  time.Time // since when every poll has met trouble of the service's; zero: the last did not
	strange   int       // polls in a row that a proxy may have refused in the service's place
	why       error     // the trouble
}

// mostStrange is how many refusals in a row that are not in the service's form count as a proxy's.
const mostStrange = 3

// judge says whether an answer is the result, or the error that it is; neither: poll again.
func (p *poll) judge(a answer, err error) (done bool, _ error) {
	switch {
	case err != nil || a.status == http.StatusGatewayTimeout:
		return false, p.unheard(err)
	case a.status < 300:
		p.troubled, p.strange = time.Time{}, 0
		return p.result(a)
	case a.status == http.StatusRequestTimeout:
		p.troubled, p.strange = time.Time{}, 0
		return false, nil
	case passing(a.status):
		return false, p.trouble(refusal(p.operation, a))
	case a.status == http.StatusBadRequest && !json.Valid(a.body) && p.strange < mostStrange:
		p.strange++
		return false, nil
	}
	return false, refusal(p.operation, a)
}

// unheard is for polls without an answer. A long poll may end so although all is well, by a proxy's limit or
// ours, so what counts is whether the service has answered anything at all, such as a heartbeat.
func (p *poll) unheard(err error) error {
	if err == nil {
		err = fmt.Errorf("a gateway has timed out")
	}
	p.why = err
	patience := max(p.c.o.Patience, 3*heartbeatEvery) // a service that works at nothing else is heard as often as it is asked
	if silence := time.Since(time.Unix(0, p.c.heard.Load())); silence >= patience {
		return fmt.Errorf("%s: nothing heard for %s: %w: %w", p.operation, silence.Round(time.Second), ErrDown, err)
	}
	return nil
}

// trouble is for answers by which the service cannot say now.
func (p *poll) trouble(why error) error {
	p.why = why
	if p.troubled.IsZero() {
		p.troubled = time.Now()
	}
	if since := time.Since(p.troubled); since >= p.c.o.Patience {
		return fmt.Errorf("%s, for %s: %w: %w", p.operation, p.c.o.Patience, ErrDown, why)
	}
	return nil
}

// result reads an answer with status 200: the result, a wish to be asked again, or the operation's failure.
func (p *poll) result(a answer) (done bool, _ error) {
	if strings.Contains(a.contentType, protobufType) {
		return true, nil
	}
	var said struct {
		Type     string          `json:"type"`
		Error    json.RawMessage `json:"error"`
		Category string          `json:"category"`
	}
	if err := readJSON(p.operation, a, &said); err != nil {
		return false, err
	}
	switch {
	case said.Type == "try_again":
		return false, nil
	case len(said.Error) > 0 && string(said.Error) != "null":
		e := &Error{Operation: p.operation, Status: a.status, Category: said.Category, Detail: detail(a.body)}
		if said.Category == "user" {
			return false, fmt.Errorf("%w: %w", ErrRefused, e)
		}
		return false, e
	}
	return true, nil
}

// quickPause bounds the wait after a poll that the service has answered at once with nothing.
const quickPause = 2 * time.Second

// rest waits before the next poll. A service that holds polls open is asked again at once; one that answers
// at once, every half second and soon every two.
func (p *poll) rest(ctx context.Context, a answer, asked time.Time) error {
	if p.why != nil {
		p.c.o.Logf("%s: its result is asked for again: %v", p.operation, p.why)
		p.why = nil
		return p.pause.wait(ctx, max(a.wait, p.pause.next()))
	}
	if time.Since(asked) >= firstPause {
		p.pause = pause{}
		return nil
	}
	return p.pause.wait(ctx, max(a.wait, min(p.pause.next(), quickPause)))
}
