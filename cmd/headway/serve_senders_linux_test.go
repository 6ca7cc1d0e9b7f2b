package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// collectiveServer speaks as much of SGLang as takes weights by a collective, which is a connection here: its
// sender writes the number of a version where it would broadcast tensors. Log-probs name the version.
type collectiveServer struct {
	front *httptest.Server
	// sampling is held for writing while it is paused or its weights change.
	sampling sync.RWMutex
	mu       sync.Mutex
	paused   bool
	label    string
	version  int
	groups   map[string]*bufio.ReadWriter
	joined   []string
	left     []string
	// session is open between a begin and an end of an update.
	session bool
}

// lineLogprob is the log-prob of every token under a version.
func lineLogprob(version int) float64 { return -1 - float64(version)/8 }

func newCollectiveServer(t *testing.T) *collectiveServer {
	t.Helper()
	s := &collectiveServer{label: "default", groups: map[string]*bufio.ReadWriter{}}
	mux := http.NewServeMux()
	for path, handle := range map[string]http.HandlerFunc{
		"GET /openapi.json": s.describe, "GET /health": func(http.ResponseWriter, *http.Request) {},
		"GET /model_info": func(w http.ResponseWriter, _ *http.Request) { replyJSON(w, s.info()) },
		"GET /server_info": func(w http.ResponseWriter, _ *http.Request) {
			replyJSON(w, map[string]any{"version": "0.5", "vocab_size": 64})
		},
		"GET /v1/models": func(w http.ResponseWriter, _ *http.Request) {
			replyJSON(w, map[string]any{"data": []any{map[string]any{"id": "m", "max_model_len": 256}}})
		},
		"POST /pause_generation": s.pause, "POST /continue_generation": s.resume, "POST /generate": s.generate, "POST /abort_request": replyNothing,
		"POST /init_weights_update_group": s.join, "POST /destroy_weights_update_group": s.part, "POST /update_weights_from_distributed": s.receive,
		"POST /begin_weight_update": s.bracket(true), "POST /end_weight_update": s.bracket(false),
	} {
		mux.HandleFunc(path, handle)
	}
	s.front = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.front.CloseClientConnections()
		s.front.Close()
	})
	return s
}

func replyJSON(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content) // who asked may have gone
}

func replyNothing(w http.ResponseWriter, _ *http.Request) { replyJSON(w, map[string]any{}) }

// succeeded answers as SGLang does what can fail.
func succeeded(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
	replyJSON(w, map[string]any{"success": err == nil, "message": fmt.Sprint(err)})
}

func (s *collectiveServer) describe(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]any{}
	for _, path := range []string{"/generate", "/pause_generation", "/continue_generation", "/init_weights_update_group", "/destroy_weights_update_group", "/update_weights_from_distributed", "/begin_weight_update", "/end_weight_update"} {
		paths[path] = map[string]any{}
	}
	replyJSON(w, map[string]any{"paths": paths})
}

func (s *collectiveServer) info() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{"model_path": "m", "served_model_name": "m", "is_generation": true, "weight_version": s.label}
}

func (s *collectiveServer) pause(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.paused {
		s.paused = true
		s.sampling.Lock()
	}
	replyJSON(w, map[string]any{})
}

func (s *collectiveServer) resume(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		s.paused = false
		s.sampling.Unlock()
	}
	replyJSON(w, map[string]any{})
}

// groupCall is what the three calls of a collective say.
type groupCall struct {
	Address string   `json:"master_address"`
	Port    int      `json:"master_port"`
	Offset  int      `json:"rank_offset"`
	World   int      `json:"world_size"`
	Name    string   `json:"group_name"`
	Names   []string `json:"names"`
	Label   string   `json:"weight_version"`
}

func (s *collectiveServer) join(w http.ResponseWriter, r *http.Request) {
	var c groupCall
	err := json.NewDecoder(r.Body).Decode(&c)
	var conn net.Conn
	if err == nil {
		conn, err = net.Dial("tcp", net.JoinHostPort(c.Address, fmt.Sprint(c.Port)))
	}
	if err == nil && (c.Offset != 1 || c.World != 2) {
		err = fmt.Errorf("rank %d of %d", c.Offset, c.World)
	}
	if err == nil {
		s.mu.Lock()
		s.groups[c.Name] = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
		s.joined = append(s.joined, c.Name)
		s.mu.Unlock()
	}
	succeeded(w, err)
}

func (s *collectiveServer) part(w http.ResponseWriter, r *http.Request) {
	var c groupCall
	err := json.NewDecoder(r.Body).Decode(&c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[c.Name] == nil {
		succeeded(w, errors.New("The group to be destroyed does not exist."))
		return
	}
	s.left = append(s.left, c.Name)
	delete(s.groups, c.Name)
	succeeded(w, err)
}

// bracket begins or ends the session within which tensors are taken, once each.
func (s *collectiveServer) bracket(begins bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.session == begins {
			succeeded(w, fmt.Errorf("begin %t while a weight-update session is already open: %t", begins, s.session))
			return
		}
		s.session = begins
		succeeded(w, nil)
	}
}

func (s *collectiveServer) receive(w http.ResponseWriter, r *http.Request) {
	var c groupCall
	err := json.NewDecoder(r.Body).Decode(&c)
	s.mu.Lock()
	defer s.mu.Unlock()
	group, version := s.groups[c.Name], 0
	switch {
	case err != nil:
	case group == nil || !s.paused || !s.session || !slices.Equal(c.Names, []string{"lm_head.weight"}):
		err = fmt.Errorf("group %q, paused %t, session %t, tensors %q", c.Name, s.paused, s.session, c.Names)
	default:
		_, err = fmt.Fscanln(group, &version)
	}
	if err == nil {
		s.version, s.label = version, c.Label
		_, err = group.WriteString("taken\n")
		err = errors.Join(err, group.Flush())
	}
	succeeded(w, err)
}

// generate answers what is asked with two tokens and the end.
func (s *collectiveServer) generate(w http.ResponseWriter, r *http.Request) {
	var req struct {
		IDs      []int32 `json:"input_ids"`
		Stream   bool    `json:"stream"`
		Start    int     `json:"logprob_start_len"`
		Sampling struct {
			Most int `json:"max_new_tokens"`
		} `json:"sampling_params"`
		Salt *string `json:"extra_key"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.sampling.RLock()
	defer s.sampling.RUnlock()
	s.mu.Lock()
	p, label := lineLogprob(s.version), s.label
	s.mu.Unlock()
	ids := []int32{10, 11, servedPolicy.EOS}
	ids = ids[:min(len(ids), req.Sampling.Most)]
	meta := map[string]any{"completion_tokens": len(ids), "finish_reason": map[string]any{"type": "stop", "matched": servedPolicy.EOS}}
	entries := func(tokens []int32) (out []any) {
		for _, id := range tokens {
			out = append(out, []any{p, id, nil})
		}
		return out
	}
	meta["output_token_logprobs"] = entries(ids)
	if len(ids) > 0 {
		meta["weight_versions"] = []any{map[string]any{"version": label, "start": 0, "end": len(ids)}}
	}
	if req.Start == 0 {
		meta["input_token_logprobs"] = entries(req.IDs)
	}
	content := map[string]any{"text": "", "output_ids": ids, "meta_info": meta}
	if !req.Stream {
		replyJSON(w, content)
		return
	}
	text, err := json.Marshal(content)
	if err == nil {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", text)
	}
}

// lineSender is a process with the trainer's weights, which are a number.
type lineSender struct {
	s        *served
	name     string
	instance string
	listener net.Listener
	mu       sync.Mutex
	holds    []loop.Version
	groups   map[string]*bufio.ReadWriter
	conns    []net.Conn
	ended    chan struct{}
	stopped  bool
}

// startSender has a process with these versions be there.
func (s *served) startSender(name, instance string, holds ...loop.Version) *lineSender {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	l := &lineSender{s: s, name: name, instance: instance, listener: listener, holds: holds, groups: map[string]*bufio.ReadWriter{}, ended: make(chan struct{})}
	go l.run()
	s.t.Cleanup(l.stop)
	return l
}

// word is what it says of itself.
func (l *lineSender) word(waitS float64, done ...protocol.SenderDone) protocol.SenderRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return protocol.SenderRequest{Instance: l.instance, Backend: "gloo", Holds: slices.Clone(l.holds), Done: done, WaitS: waitS}
}

// hold makes a version one that it has, and says so.
func (l *lineSender) hold(version loop.Version) {
	l.s.t.Helper()
	l.mu.Lock()
	l.holds = append(l.holds, version)
	l.mu.Unlock()
	if status := l.s.ask("/api/v1/senders/"+l.name, l.word(0), nil); status != http.StatusOK {
		l.s.t.Errorf("holding version %d: %d", version, status)
	}
}

// run does what it is told, one command after the other, until it is refused or told to stop.
func (l *lineSender) run() {
	defer close(l.ended)
	var done []protocol.SenderDone
	for {
		var reply protocol.SenderReply
		status := l.s.ask("/api/v1/senders/"+l.name, l.word(1, done...), &reply)
		l.mu.Lock()
		stopped := l.stopped
		l.mu.Unlock()
		if status != http.StatusOK || stopped {
			return
		}
		done = nil
		for _, c := range reply.Commands {
			done = append(done, l.do(c))
		}
	}
}

// stop ends it without a word, and the collectives that it is in.
func (l *lineSender) stop() {
	l.mu.Lock()
	l.stopped = true
	_ = l.listener.Close()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	<-l.ended
}

func (l *lineSender) do(c protocol.SenderCommand) protocol.SenderDone {
	done := protocol.SenderDone{Seq: c.Seq}
	var err error
	switch c.Kind {
	case protocol.SenderHold:
		done.Digest = fmt.Sprint("of version ", c.Version)
		done.Tensors = []protocol.SenderTensor{{Name: "lm_head.weight", DType: "float32", Shape: []int64{1}}}
		l.mu.Lock()
		if !slices.Contains(l.holds, c.Version) && c.Version > 0 {
			err = fmt.Errorf("version %d is not among %v", c.Version, l.holds)
		}
		l.mu.Unlock()
	case protocol.SenderJoin:
		err = l.join(c)
	case protocol.SenderSend:
		l.mu.Lock()
		group := l.groups[c.Group]
		l.mu.Unlock()
		if group == nil {
			err = fmt.Errorf("it is in no group %s", c.Group)
			break
		}
		_, err = fmt.Fprintln(group, c.Version)
		if err = errors.Join(err, group.Flush()); err == nil {
			_, err = group.ReadString('\n')
		}
	}
	if err != nil {
		done.Error = err.Error()
	}
	return done
}

func (l *lineSender) join(c protocol.SenderCommand) error {
	request := protocol.RendezvousRequest{Member: l.name, Role: "trainer", Engines: 1, Address: l.listener.Addr().String(), Backend: "gloo", WaitS: 60}
	if status := l.s.ask("/api/v1/rendezvous/"+c.Rendezvous, request, nil); status != http.StatusOK {
		return fmt.Errorf("the meeting answered %d", status)
	}
	conn, err := l.listener.Accept()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	l.groups[c.Group] = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	return nil
}

// publishSent commits a version that the sender of that name holds.
func (s *served) publishSent(b *batchtest.Tensors, sender string) (int, string) {
	s.t.Helper()
	text, err := json.Marshal(protocol.PublishRequest{
		Trainer: "t", Lease: b.Lease.Lease, Attempt: b.Lease.Attempt, Version: b.Lease.Version + 1, Kind: weights.KindFull, BaseVersion: loop.NoVersion,
		ForwardVersion: b.Lease.Version, StepVersion: b.Lease.Version, Rendezvous: sender,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	status, answer := s.call("/api/v1/weights", "application/json", text)
	return status, string(answer)
}

// leased is the next batch.
func (s *served) leased() *batchtest.Tensors {
	s.t.Helper()
	body, err := json.Marshal(protocol.LeaseRequest{Trainer: "t", WaitS: 60})
	if err != nil {
		s.t.Fatal(err)
	}
	for {
		status, raw := s.call("/api/v1/batches/lease", "application/json", body)
		if status == http.StatusNoContent {
			continue
		}
		tensors, err := batchtest.Decode(raw)
		if status != http.StatusOK || err != nil {
			s.t.Fatalf("lease: %d %s, %v", status, raw, err)
		}
		return tensors
	}
}

// sampledBy fails unless every token's log-prob is of the version that it is said to be of, and returns the versions.
func sampledBy(t *testing.T, batches []*batchtest.Tensors) map[int32]int {
	t.Helper()
	versions := map[int32]int{}
	for _, b := range batches {
		for i, mask := range b.LossMask {
			if mask == 0 {
				continue
			}
			versions[b.Versions[i]]++
			if want := lineLogprob(int(b.Versions[i])); math.Abs(float64(b.Logprobs[i])-want) > 1e-6 {
				t.Errorf("lease %d: a token of version %d has the log-prob %g, want %g", b.Lease.Lease, b.Versions[i], b.Logprobs[i], want)
			}
		}
	}
	return versions
}

// A run whose engine takes its weights from the trainer's process: it waits for one, serves what it was sent, and
// goes on with the process that comes after it. The store has version 0 alone.
func TestServeSender(t *testing.T) {
	const steps = 6
	dir, server := t.TempDir(), newCollectiveServer(t)
	engines := fmt.Sprintf("{kind: sglang, name: a, url: %q, slots: 4, weights: distributed, cache: keep}", server.front.URL)
	s := startServe(t, dir, fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), engines, steps), "--json")
	s.connect()
	for {
		status := s.status()
		if w := status.Sender; w != nil && slices.Equal(w.Waiting, []string{"a"}) {
			if w.State != "absent" {
				t.Errorf("nobody is there, and the sender is %+v", *w)
			}
			break
		}
	}
	if !s.until("engine a waits for a sender") {
		t.Errorf("it waits for a sender, and the log does not say so:\n%s", s.text())
	}
	sender := s.startSender("t", "first")
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(s.play)
	}
	var batches []*batchtest.Tensors
	for step := range steps {
		b := s.leased()
		batches = append(batches, b)
		if step == 1 {
			if status, text := s.publishSent(b, "u"); status != http.StatusConflict || !strings.Contains(text, "is not this run's sender, which is t") {
				t.Errorf("by another's name: %d %s", status, text)
			}
		}
		if step == 3 {
			sender.stop()
			sender = s.startSender("t", "second")
		}
		sender.hold(b.Lease.Version + 1)
		for range min(2, steps-step) { // the last one ends the run
			if status, text := s.publishSent(b, "t"); status != http.StatusOK {
				t.Fatalf("publishing version %d: %d %s", b.Lease.Version+1, status, text)
			}
		}
		if step == 4 {
			var hello protocol.ConnectReply
			if status := s.ask("/api/v1/trainers/connect", protocol.ConnectRequest{Trainer: "t", Version: b.Lease.Version + 1}, &hello); status != http.StatusOK || hello.Load != 0 || hello.Action != protocol.ActionTrain {
				t.Errorf("the trainer connects anew and is answered %d %+v, want it to train, and version 0 to load from", status, hello)
			}
			w := s.status().Sender
			for w != nil && !slices.Contains(w.Holds, b.Lease.Version+1) { // it says so with its next call
				w = s.status().Sender
			}
			if w == nil || w.Name != "t" || w.State != "serving" || w.Backend != "gloo" {
				t.Errorf("the status has the sender %+v", w)
			}
		}
	}
	workers.Wait()
	sender.stop()
	final := s.final()
	if final.Version != steps || !final.Ledger.Balanced {
		t.Errorf("the run ended at version %d of %d; balanced %t", final.Version, steps, final.Ledger.Balanced)
	}
	if versions := sampledBy(t, batches); len(versions) < 3 {
		t.Errorf("tokens of the versions %v were trained on: were weights ever changed?", versions)
	}
	if len(server.joined) != 2 || server.joined[0] == server.joined[1] {
		t.Errorf("it was in the groups %v, want one with each process", server.joined)
	}
	store, err := weights.Open(filepath.Join(dir, "runs", "r", "weights"), weights.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	for v, want := range map[loop.Version]string{0: weights.KindFull, steps - 1: weights.KindNone, steps: weights.KindNone} {
		if m, err := store.Manifest(v); err != nil || m.Kind != want {
			t.Errorf("version %d is of kind %q, want %s: %v", v, m.Kind, want, err)
		}
	}
}

// A control plane that is started again has engines take the newest version from the sender, as the store does not
// have it. A trainer that lost it is told to publish what it has.
func TestServeSenderAfterACrash(t *testing.T) {
	const steps = 3
	dir, server := t.TempDir(), newCollectiveServer(t)
	engines := fmt.Sprintf("{kind: sglang, name: a, url: %q, slots: 4, weights: distributed, cache: keep}", server.front.URL)
	document := fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), engines, steps)
	s := startServe(t, dir, document)
	sender := s.startSender("t", "first")
	s.connect()
	var workers sync.WaitGroup
	workers.Go(s.play)
	var batches []*batchtest.Tensors
	for range steps - 1 {
		b := s.leased()
		batches = append(batches, b)
		sender.hold(b.Lease.Version + 1)
		if status, text := s.publishSent(b, "t"); status != http.StatusOK {
			t.Fatalf("publishing: %d %s", status, text)
		}
	}
	s.kill()
	workers.Wait()
	sender.stop()

	s = startServe(t, dir, document, "--json")
	var hello protocol.ConnectReply
	if status := s.ask("/api/v1/trainers/connect", protocol.ConnectRequest{Trainer: "t", Version: loop.NoVersion}, &hello); status != http.StatusOK ||
		hello.Action != protocol.ActionRepublish || hello.Version != steps-1 || hello.Load != 0 {
		t.Errorf("a trainer without the newest version is answered %d %+v, want it to publish version 0 as the next", status, hello)
	}
	if status := s.ask("/api/v1/trainers/connect", protocol.ConnectRequest{Trainer: "t", Version: steps - 1}, &hello); status != http.StatusOK || hello.Action != protocol.ActionTrain {
		t.Errorf("the trainer that has it is answered %d %+v, want it to train", status, hello)
	}
	sender = s.startSender("t", "first", steps-2, steps-1) // the engine may be told to begin with the one before
	workers.Go(s.play)
	for engines := s.status().Engines; len(engines) == 0 || engines[0].Version != steps-1 || engines[0].State != "serving"; engines = s.status().Engines {
	}
	b := s.leased()
	batches = append(batches, b)
	sender.hold(steps)
	if status, text := s.publishSent(b, "t"); status != http.StatusOK {
		t.Fatalf("publishing: %d %s", status, text)
	}
	workers.Wait()
	sender.stop()
	if final := s.final(); final.Version != steps || !final.Ledger.Balanced {
		t.Errorf("the run ended at version %d of %d; balanced %t", final.Version, steps, final.Ledger.Balanced)
	}
	sampledBy(t, batches)
	if len(server.joined) != 2 {
		t.Errorf("it was in the groups %v, want one before the crash and one after it", server.joined)
	}
	if !slices.Equal(server.left, server.joined) {
		t.Errorf("it was in the groups %v and was told to leave %v: want each, the one before the crash too", server.joined, server.left)
	}
}
