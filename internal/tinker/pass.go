package tinker

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// encoding is what a service reads a pass in.
type encoding int

const (
	unprobed encoding = iota
	asProtobuf
	asJSON
)

// pass computes on data in as many requests as the service's limits ask for.
func (m *Model) pass(ctx context.Context, data []Datum, loss Loss, forwardOnly bool) (Output, error) {
	operation := "forward_backward"
	if forwardOnly {
		operation = "forward"
	}
	if err := checkData(data, loss); err != nil {
		return Output{}, fmt.Errorf("%w: %s: %w", ErrRefused, operation, err)
	}
	if err := m.take(ctx); err != nil {
		return Output{}, err
	}
	// Whatever fails, the other chunks' results are of no use any more.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	chunks := m.s.limits.divide(data)
	g := gathering{m: m, operation: operation, changes: !forwardOnly, cancel: cancel, outputs: make([]Output, len(chunks))}
	for i, chunk := range chunks {
		t, err := m.sendPass(ctx, pass{model: m.id, data: chunk, loss: loss, forwardOnly: forwardOnly})
		if err != nil {
			g.fail(i, i > 0, err)
			break
		}
		g.chunks.Go(func() { g.await(ctx, i, t, chunk) })
	}
	m.leave()
	g.chunks.Wait()
	if g.first != nil {
		return Output{}, g.first
	}
	return combine(g.outputs), nil
}

// gathering is the results of a pass's chunks as they come in.
type gathering struct {
	m         *Model
	operation string
	changes   bool
	cancel    context.CancelFunc
	chunks    sync.WaitGroup
	outputs   []Output

	mu    sync.Mutex
	first error
}

// await gets the result of a chunk that was taken.
func (g *gathering) await(ctx context.Context, i int, t taken, chunk []Datum) {
	a, err := g.m.s.c.await(ctx, g.operation, t, protobufType)
	if err == nil {
		if g.outputs[i], err = outputFrom(a); err != nil {
			err = fmt.Errorf("the answer cannot be read: %w", err)
		} else {
			err = checkOutput(g.outputs[i], chunk)
		}
	}
	if err != nil {
		g.fail(i, true, err)
	}
}

// fail keeps the first failure, of chunk i. taken says whether the service has taken this chunk or one before it, so that of
// a gradient a part is there.
func (g *gathering) fail(i int, taken bool, err error) {
	g.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first != nil {
		return
	}
	if len(g.outputs) > 1 {
		err = fmt.Errorf("request %d of %d: %w", i+1, len(g.outputs), err)
	}
	if g.changes && taken {
		err = g.m.breaks(g.operation, err)
	}
	g.first = err
}

// sendPass sends one request of a pass in the encoding that the service reads.
func (m *Model) sendPass(ctx context.Context, p pass) (taken, error) {
	e, err := m.s.reads(ctx)
	if err != nil {
		return taken{}, err
	}
	return m.sendAs(ctx, p, e)
}

// reads says what encoding the service reads, which the first pass of a session finds out.
//
// It asks with what can do no harm, a pass without data on a model that nobody has, because an answer to a real one
// need not say whether it was taken: SkyRL 0.3 answers protobuf, which it does not read, with 500. A server that
// reads protobuf takes the question, or does not know the model. Any other answer leaves it open, and then an
// empty object in JSON is asked with: a server that reads it says which fields are missing, and one that says
// anything else does not read it. Versions are not asked: the next release of the same server may read both.
func (s *Session) reads(ctx context.Context) (encoding, error) {
	s.mu.Lock()
	known := s.encoding
	s.mu.Unlock()
	if known != unprobed {
		return known, nil
	}
	e, err := s.probe(ctx)
	if err == nil {
		s.mu.Lock()
		s.encoding = e
		s.mu.Unlock()
	}
	return e, err
}

func (s *Session) probe(ctx context.Context) (encoding, error) {
	question := pass{model: "headway-asks-what-is-read", seq: 1, loss: Loss{Name: "cross_entropy"}}
	l := call{operation: "forward_backward", path: "forward_backward", body: question.protobuf(), contentType: protobufType}
	began, pause := time.Now(), pause{}
	for {
		a, _, err := s.c.try(ctx, l)
		if err == nil && understood(a.status) {
			return asProtobuf, nil
		}
		if err == nil && !(passing(a.status) && (untaken(a.status) || a.status == http.StatusServiceUnavailable)) {
			a, _, err = s.c.try(ctx, call{operation: l.operation, path: l.path, body: []byte("{}")})
		}
		switch {
		case ctx.Err() != nil:
			return unprobed, context.Cause(ctx)
		case err == nil && a.status < 500 && strings.Contains(detail(a.body), "model_id"):
			return asJSON, nil
		case err == nil && !passing(a.status):
			return asProtobuf, nil
		case err == nil:
			err = refusal(l.operation, a)
		}
		if time.Since(began) >= s.c.o.Patience {
			return unprobed, fmt.Errorf("%s, for %s: %w: %w", l.operation, s.c.o.Patience, ErrDown, err)
		}
		if pause.wait(ctx, max(a.wait, pause.next())) != nil {
			return unprobed, context.Cause(ctx)
		}
	}
}

// understood says whether a status answers a question that was read: taken, or about key, model or number.
func understood(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone:
		return true
	}
	return status < 300
}

func (m *Model) sendAs(ctx context.Context, p pass, e encoding) (taken, error) {
	return m.send(ctx, func(seq int) (call, error) {
		p.seq = seq
		if e == asProtobuf {
			return call{operation: "forward_backward", path: "forward_backward", body: p.protobuf(), contentType: protobufType}, nil
		}
		path, body, err := p.json()
		return call{operation: path, path: path, body: body}, err
	})
}
