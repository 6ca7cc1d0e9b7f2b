package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
)

// FuzzDecoder holds a dialect's decoder to any events that a server may send. It neither panics nor
// makes more of an event than its bytes can hold, and names an end that there is. The seeds are the
// events of recorded conversations, and those given.
func FuzzDecoder(f *testing.F, decoder func() upstream.Decoder, transcripts []string, events ...string) {
	for _, e := range events {
		f.Add([]byte(e))
	}
	for _, file := range transcripts {
		for _, events := range recordedEvents(f, file) {
			f.Add(bytes.Join(events[max(0, len(events)-3):], []byte("\n")))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		d, into := decoder(), upstream.Delta{}
		for event := range bytes.SplitSeq(stream, []byte("\n")) {
			if d.Event(event, &into) != nil {
				return // what an event has brought that is refused is never looked at
			}
			if most := len(stream); len(into.Tokens) > most || len(into.Logprobs) > most || len(into.Text) > 3*most || len(into.Spans) > most {
				t.Fatalf("%d bytes have given %d tokens, %d log-probs, %d bytes of text and %d spans", most, len(into.Tokens), len(into.Logprobs), len(into.Text), len(into.Spans))
			}
			switch into.Finish {
			case "", upstream.FinishStop, upstream.FinishLength, upstream.FinishAbort:
			default:
				t.Fatalf("it ends by %q", into.Finish)
			}
		}
	})
}

// recordedEvents are the events of every stream of a conversation.
func recordedEvents(f *testing.F, file string) (streams [][][]byte) {
	transcript, err := Load(file)
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range transcript.Exchanges {
		if events := e.Events(); e.Stream() && len(events) > 0 {
			streams = append(streams, events)
		}
	}
	return streams
}

// answerEnd separates the answers in an input of FuzzServer. A NUL is in no JSON.
var answerEnd = []byte{0}

// answerStatuses are the statuses that an answer may have: one byte of the input chooses.
var answerStatuses = []int{200, 200, 200, 200, 204, 302, 400, 401, 404, 405, 409, 422, 429, 500, 503}

// FuzzServer holds a dialect against a server that answers anything: it is probed, asked for everything that
// dialects ask, and may refuse. The answers of a recorded conversation are the seeds.
func FuzzServer(f *testing.F, dialect func() upstream.Dialect, transcripts ...string) {
	f.Add([]byte(`{"a":1}`), []byte{0, 8, 13})
	for _, file := range transcripts {
		transcript, err := Load(file)
		if err != nil {
			f.Fatal(err)
		}
		answers, statuses := recordedAnswers(transcript)
		f.Add(answers, statuses)
	}
	f.Fuzz(func(t *testing.T, answers, statuses []byte) {
		synctest.Test(t, func(t *testing.T) { // waits cost no time
			said, at := bytes.Split(answers, answerEnd), 0
			s := inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
				status := http.StatusOK
				if len(statuses) > 0 {
					status = answerStatuses[int(statuses[at%len(statuses)])%len(answerStatuses)]
				}
				w.WriteHeader(status)
				_, _ = w.Write(said[at%len(said)])
				at++
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			askAll(ctx, t, dialect(), s)
		})
	})
}

// recordedAnswers are a conversation's whole answers as an input of FuzzServer, in order.
func recordedAnswers(transcript *Transcript) (answers, statuses []byte) {
	for _, e := range transcript.Exchanges {
		if e.Stream() || e.Status == 0 {
			continue
		}
		if statuses != nil {
			answers = append(answers, answerEnd...)
		}
		for _, p := range e.Pieces {
			answers = append(answers, p.Data...)
		}
		index := byte(0)
		for i, status := range answerStatuses {
			if status == e.Status {
				index = byte(i)
			}
		}
		statuses = append(statuses, index)
	}
	return answers, statuses
}

// askAll asks a server everything. Errors are fine, answers that do not fit the question are not.
func askAll(ctx context.Context, t *testing.T, d upstream.Dialect, s *upstream.Server) {
	caps, err := d.Probe(ctx, s)
	if err != nil {
		caps = upstream.Capabilities{}
	}
	tokens := []int32{1, 2, 3}
	if scorer, ok := d.(upstream.Scorer); ok {
		scores, err := scorer.Score(ctx, s, tokens, &caps)
		if err == nil && len(scores) != len(tokens)-1 {
			t.Errorf("%d scores of %d tokens", len(scores), len(tokens))
		}
		for _, x := range scores {
			if math.IsNaN(float64(x)) {
				t.Errorf("scores %v", scores)
			}
		}
	}
	if templater, ok := d.(upstream.Templater); ok {
		_, _ = templater.Render(ctx, s, []byte(`[{"role":"user","content":"a"}]`), nil, true, &caps)
		_, _ = templater.Encode(ctx, s, "a", &caps)
		_, _ = templater.Decode(ctx, s, tokens, &caps)
	}
	_, _ = d.Version(ctx, s, &caps)
	_ = d.Abort(ctx, s, "id", &caps)
	if _, restarts := d.(upstream.Restarter); restarts { // it would start a program
		return
	}
	_ = d.Pause(ctx, s, upstream.Update{}, &caps)
	_ = d.Update(ctx, s, upstream.Update{}, &caps)
	_ = d.Resume(ctx, s, &caps)
	if _, err := json.Marshal(caps.Missing); err != nil {
		t.Error(err)
	}
}

// connections is a listener of connections in memory, so that they have a bubble's clock.
type connections chan net.Conn

func (c connections) Accept() (net.Conn, error) {
	if one, open := <-c; open {
		return one, nil
	}
	return nil, net.ErrClosed
}
func (c connections) Close() error   { close(c); return nil }
func (c connections) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// inMemory is a server that is spoken to in memory.
func inMemory(t *testing.T, handle http.HandlerFunc) *upstream.Server {
	listener := make(connections)
	front := &http.Server{Handler: handle}
	go func() { _ = front.Serve(listener) }()
	s, err := upstream.NewServer(upstream.ServerOptions{URL: "http://memory", Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		listener <- theirs
		return ours, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		_ = front.Close()
	})
	return s
}
