package jetstream

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
)

// fetchBytes and fetchMessages are what one Samples call asks for at a time. Many large
// messages at once would fill the server's buffer for this connection.
const fetchBytes, fetchMessages = 4 << 20, 32

// fetch returns the bodies of the payloads at places, verified: from memory, or from the
// server, each of whose messages is asked for once.
func (s *Store) fetch(places []place) ([][]byte, error) {
	bodies := make([][]byte, len(places))
	var missing []uint64
	got := map[uint64][]byte{}
	flying := 0
	for i, at := range places {
		if bodies[i] = at.body; at.body != nil {
			continue
		}
		for _, seq := range at.seqs {
			if _, ok := got[seq]; !ok {
				got[seq] = nil
				missing = append(missing, seq)
			}
		}
		if flying += at.size; flying >= fetchBytes || len(missing) >= fetchMessages || i == len(places)-1 {
			if err := s.fetchMessages(missing, got); err != nil {
				return nil, err
			}
			missing, flying = missing[:0], 0
		}
	}
	if err := s.fetchMessages(missing, got); err != nil {
		return nil, err
	}
	for i, at := range places {
		if bodies[i] == nil {
			bodies[i] = cut(at, got)
		}
		if crc32.Checksum(bodies[i], castagnoli) != at.sum {
			return nil, fmt.Errorf("sample %d: %w", at.sample, errDamaged)
		}
	}
	return bodies, nil
}

// cut takes a payload out of its messages.
func cut(at place, got map[uint64][]byte) []byte {
	var whole []byte
	for _, seq := range at.seqs {
		if len(at.seqs) == 1 {
			whole = got[seq]
		} else {
			whole = append(whole, got[seq]...)
		}
	}
	if at.offset+at.size > len(whole) {
		return nil
	}
	return whole[at.offset : at.offset+at.size]
}

// fetchMessages reads messages at the same time.
func (s *Store) fetchMessages(seqs []uint64, into map[uint64][]byte) error {
	bodies, errs := make([][]byte, len(seqs)), make([]error, len(seqs))
	if len(seqs) == 1 {
		bodies[0], errs[0] = s.fetchBody(seqs[0])
	} else {
		var wait sync.WaitGroup
		for i, seq := range seqs {
			wait.Go(func() { bodies[i], errs[i] = s.fetchBody(seq) })
		}
		wait.Wait()
	}
	for i, seq := range seqs {
		into[seq] = bodies[i]
	}
	return errors.Join(errs...)
}

func (s *Store) fetchBody(seq uint64) ([]byte, error) {
	m, err := s.fetchMessage(seq)
	return m.data, err
}

// fetchMessage reads a message of the payload stream from any replica, and from the leader where that one has not
// got it yet or nobody answers.
func (s *Store) fetchMessage(seq uint64) (message, error) {
	request := fmt.Appendf(nil, `{"seq":%d}`, seq)
	for {
		try, cancel := context.WithTimeout(s.ctx, apiTimeout)
		reply, err := s.get.RequestWithContext(try, "$JS.API.DIRECT.GET."+s.names.data, request)
		if err == nil && reply.Header.Get("Status") == "" && (reply.Header.Get(headerPayload) != "" || reply.Header.Get(headerBlob) != "") {
			cancel()
			return message{seq, reply.Header, reply.Data}, nil
		}
		m, err2 := s.leaderGet(try, s.names.data, seq)
		cancel()
		if err2 == nil {
			return m, nil
		}
		if errors.Is(err2, errNoMessage) {
			return message{}, fmt.Errorf("message %d of %s is gone: %w", seq, s.names.data, errNoMessage)
		}
		if !transient(err2) {
			return message{}, errors.Join(err, err2)
		}
		if !s.pause(s.ctx, retryWait) {
			return message{}, ErrClosed
		}
	}
}
