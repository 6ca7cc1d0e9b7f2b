package tinker

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// knowledge is what a session has found out about what a service makes of numbers.
type knowledge int

const (
	untried knowledge = iota
	byNumber
	notByNumber
)

// proofTime bounds the proof below, in which the model whose request it is about stands still.
const proofTime = 2 * time.Minute

// knowsByNumber says whether the service executes a number once, however often its request comes. It finds out when that is
// first needed, on a model that is made for it: a pass without gradient is sent twice under one number. It is known
// by its number where the second is the same future as the first, or refused because its number is over (409). Where
// the proof itself fails, the answer is no for now. A server that reads JSON is not tried: the one there is does not have
// the number in its requests.
func (s *Session) knowsByNumber(ctx context.Context, o ModelOptions) bool {
	s.mu.Lock()
	known, reads := s.numbers, s.encoding
	s.mu.Unlock()
	if known != untried || reads != asProtobuf {
		return known == byNumber
	}
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	m, err := s.NewModel(ctx, o)
	if err != nil {
		s.c.o.Logf("whether the service knows requests by number stays open: %v", err)
		return false
	}
	found, err := m.isKnownByNumber(ctx)
	if kept := m.Unload(ctx); kept != nil { // until the session ends, which costs the service a little
		s.c.o.Logf("the model by which the service was tried is not unloaded: %v", kept)
	}
	if err != nil {
		s.c.o.Logf("whether the service knows requests by number stays open: %v", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers = notByNumber
	if found {
		s.numbers = byNumber
	}
	return found
}

// isKnownByNumber tries it on a model that has done nothing yet.
func (m *Model) isKnownByNumber(ctx context.Context) (bool, error) {
	p := pass{
		model: m.id, seq: 1, forwardOnly: true, loss: Loss{Name: "cross_entropy"},
		data: []Datum{{Tokens: []int32{1, 1}, Targets: []int32{1, 1}, Weights: []float32{0, 1}}},
	}
	l := call{operation: "forward_backward", path: "forward_backward", body: p.protobuf(), contentType: protobufType, once: true, fresh: true}
	first, err := m.s.c.submit(ctx, l)
	if err != nil {
		return false, err
	}
	if _, err := m.s.c.await(ctx, l.operation, first, protobufType); err != nil {
		return false, err
	}
	second, err := m.s.c.submit(ctx, l)
	if err == nil && second.RequestID != first.RequestID {
		_, err = m.s.c.await(ctx, l.operation, second, protobufType)
		var said *Error
		if err == nil {
			return false, nil
		}
		if errors.As(err, &said) && said.Status == http.StatusConflict {
			return true, nil
		}
	}
	return err == nil, err
}
