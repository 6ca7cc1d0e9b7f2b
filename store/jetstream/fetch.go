package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// fetch reads the payloads at places, several messages at a time, and hands each to use.
func (s *Store) fetch(places []place, use func(i int, body []byte) error) error {
	first, flying, messages := 0, 0, 0
	for i, at := range places {
		flying += at.size
		messages += len(at.seqs)
		if flying < fetchBytes && messages < fetchMessages && i < len(places)-1 {
			continue
		}
		if err := s.fetchAtOnce(places[first:i+1], func(j int, body []byte) error { return use(first+j, body) }); err != nil {
			return err
		}
		first, flying, messages = i+1, 0, 0
	}
	return nil
}

func (s *Store) fetchAtOnce(places []place, use func(i int, body []byte) error) error {
	if len(places) == 1 {
		body, err := s.fetchOne(places[0])
		if err == nil {
			err = use(0, body)
		}
		return err
	}
	errs := make([]error, len(places))
	var wait sync.WaitGroup
	for i, at := range places {
		wait.Go(func() {
			body, err := s.fetchOne(at)
			if err == nil {
				err = use(i, body)
			}
			errs[i] = err
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// fetchOne reads one payload, chunk after chunk.
func (s *Store) fetchOne(at place) ([]byte, error) {
	if len(at.seqs) == 1 {
		return s.fetchMessage(at.seqs[0])
	}
	body := make([]byte, 0, at.size)
	for _, seq := range at.seqs {
		part, err := s.fetchMessage(seq)
		if err != nil {
			return nil, err
		}
		body = append(body, part...)
	}
	return body, nil
}

// fetchMessage reads a message from any replica, and from the leader where that one has not
// got it yet or nobody answers.
func (s *Store) fetchMessage(seq uint64) ([]byte, error) {
	request := fmt.Appendf(nil, `{"seq":%d}`, seq)
	for {
		try, cancel := context.WithTimeout(s.ctx, apiTimeout)
		reply, err := s.get.RequestWithContext(try, "$JS.API.DIRECT.GET."+s.names.data, request)
		if err == nil && reply.Header.Get("Status") == "" && reply.Header.Get(headerPayload) != "" {
			cancel()
			return reply.Data, nil
		}
		m, err2 := s.leaderGet(try, s.names.data, seq)
		cancel()
		if err2 == nil {
			return m.data, nil
		}
		if errors.Is(err2, errNoMessage) {
			return nil, fmt.Errorf("message %d of %s is gone: %w", seq, s.names.data, errNoMessage)
		}
		if !transient(err2) {
			return nil, errors.Join(err, err2)
		}
		if !s.pause(s.ctx, retryWait) {
			return nil, ErrClosed
		}
	}
}
