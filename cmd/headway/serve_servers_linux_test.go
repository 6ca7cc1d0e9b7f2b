package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// farewell is said by a run that has ended and is still answered for.
const farewell = "the run has ended: whoever asks for work is told so"

// servedPolicy is what the servers of these tests sample: it can be computed by hand.
var servedPolicy = enginetest.Policy{Vocabulary: 64, EOS: 4, Length: 12}

// tinyTensor is a file of weights with one number.
func tinyTensor(t *testing.T, value byte) []byte {
	t.Helper()
	raw, err := weights.AppendHeader(nil, []weights.Entry{{Name: "lm_head.weight", DType: weights.F32, Shape: []int{1}}})
	if err != nil {
		t.Fatal(err)
	}
	return append(raw, value, 0, 0, 0)
}

// tinyModel is a model's directory as far as a control plane reads it.
func tinyModel(t *testing.T, vocabulary int) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"config.json":         fmt.Appendf(nil, `{"vocab_size": %d, "max_position_embeddings": 256}`, vocabulary),
		"tokenizer.json":      []byte("{}"),
		weights.ModelName:     tinyTensor(t, 0),
		"pytorch_model.bin":   []byte("the same in another form"),
		"training_args.bin":   []byte("of somebody else"),
		"special_tokens.json": []byte("{}"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// versionOfView is the version that a path to a view names, as the weights' name.
func versionOfView(dir string) (string, error) { return filepath.Base(filepath.Dir(dir)), nil }

func policyServer(t *testing.T, spans bool) *enginetest.PolicyServer {
	t.Helper()
	s := enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: servedPolicy, Context: 256, Weights: "as started", Spans: spans, Named: versionOfView})
	t.Cleanup(s.Close)
	return s
}

// served is a control plane in a process of its own.
type served struct {
	t   *testing.T
	dir string
	url string
	// token goes with every call that names no other; empty for none.
	token string
	cmd   *exec.Cmd
	mu    sync.Mutex
	said  []string
	// stdout is what it printed, to be read once it has ended.
	stdout bytes.Buffer
	// heard has room for one: that a line was said.
	heard chan struct{}
	// over is closed when the run has ended, ended when the process has; killed: it was told to.
	over   chan struct{}
	ended  chan struct{}
	killed atomic.Bool
	// claimed has the rollouts that play was given.
	claimed sync.Map
	// next is the process that takes its place; nil while none does.
	next atomic.Pointer[successor]
}

// successor is the process that takes another's place, from when ready is closed.
type successor struct {
	ready chan struct{}
	*served
}

// startServe starts the program on a document and returns when it listens; nil url where it ended before.
func startServe(t *testing.T, dir, document string, arguments ...string) *served {
	t.Helper()
	return startServeOf(t, program(t), dir, document, arguments...)
}

// withTheTest ends a process with the test's, also where that runs out of time.
var withTheTest = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

// startServeOf starts one build of the program.
func startServeOf(t *testing.T, build, dir, document string, arguments ...string) *served {
	t.Helper()
	file := filepath.Join(dir, "run.yaml")
	if err := os.WriteFile(file, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, dir: dir, heard: make(chan struct{}, 1), over: make(chan struct{}), ended: make(chan struct{})}
	s.cmd = exec.Command(build, append([]string{"serve", file, "--listen", "127.0.0.1:0", "--name", "r", "--dir", filepath.Join(dir, "runs")}, arguments...)...)
	s.cmd.Stdout = &s.stdout
	s.cmd.SysProcAttr = withTheTest
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	go s.read(stderr, listening)
	t.Cleanup(s.kill)
	select {
	case s.url = <-listening:
	case <-s.ended:
	}
	return s
}

// read keeps what the program says.
func (s *served) read(stderr io.Reader, listening chan<- string) {
	defer close(s.ended)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		line := lines.Text()
		s.mu.Lock()
		s.said = append(s.said, line)
		s.mu.Unlock()
		select {
		case s.heard <- struct{}{}:
		default: // it is to look already
		}
		if _, url, ok := strings.Cut(line, "listening on "); ok {
			listening <- url
		}
		if strings.Contains(line, farewell) {
			close(s.over)
		}
	}
	_ = s.cmd.Wait() // the exit code is in ProcessState
}

func (s *served) kill() {
	if s.killed.Swap(true) {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.ended
	if s.t.Failed() {
		s.t.Logf("the control plane said:\n%s", s.text())
	}
}

// final is the status that a control plane started with --json prints at the end of its run. What one
// answers before may be from before its last train step was noted.
func (s *served) final() (status protocol.Status) {
	s.t.Helper()
	select {
	case <-s.over:
		_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended
	case <-s.ended:
	}
	<-s.ended
	if err := json.Unmarshal(s.stdout.Bytes(), &status); err != nil {
		s.t.Fatalf("%v in %q\n%s", err, s.stdout.String(), s.text())
	}
	return status
}

func (s *served) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.said, "\n")
}

// call sends a request until it is answered with something else than that the plane is starting. It goes on at the process that
// takes this one's place.
func (s *served) call(path, kind string, body []byte, header ...string) (int, []byte) {
	s.t.Helper()
	for {
		req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, bytes.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		if body == nil {
			req.Method = http.MethodGet
		}
		req.Header.Set("Content-Type", kind)
		if s.token != "" {
			req.Header.Set("Authorization", "Bearer "+s.token)
		}
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		var text []byte
		if err == nil {
			text, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		if next := s.next.Load(); err != nil && next != nil {
			select {
			case <-next.ready:
				s = next.served
				continue
			case <-s.t.Context().Done():
			}
		}
		if err != nil {
			if !s.killed.Load() {
				s.t.Errorf("%s: %v", path, err)
			}
			return 0, nil
		}
		if res.StatusCode != http.StatusServiceUnavailable {
			return res.StatusCode, text
		}
	}
}

// ready returns when the program answers what workers and agents ask.
func (s *served) ready() {
	s.t.Helper()
	s.call("/readyz", "", nil)
}

// ask sends JSON and reads JSON.
func (s *served) ask(path string, request, reply any, header ...string) int {
	s.t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	status, text := s.call(path, "application/json", body, header...)
	if status == http.StatusOK && reply != nil {
		if err := json.Unmarshal(text, reply); err != nil {
			s.t.Errorf("%s: %v in %s", path, err, text)
		}
	}
	return status
}

func (s *served) status() (status protocol.Status) {
	s.t.Helper()
	code, text := s.call("/api/v1/status", "", nil)
	if err := json.Unmarshal(text, &status); code != http.StatusOK || err != nil {
		s.t.Fatalf("status: %d %v", code, err)
	}
	return status
}

// prompt is what every rollout of a group samples after.
func servedPrompt(c protocol.Claim) []int32 {
	return []int32{5, 6 + int32(c.Prompt%50), 7}
}

// play plays rollouts until the run has ended: every other one by OpenAI's API.
func (s *served) play() { s.playBy(s.sample) }

// playBy has sample play each rollout that is claimed. It says whether there is something to finish.
func (s *served) playBy(sample func(protocol.Claim) bool) {
	for {
		var claims protocol.Claims
		switch s.ask("/api/v1/rollouts/claim", protocol.ClaimRequest{Worker: "w", Max: 1, WaitS: 5}, &claims) {
		case http.StatusOK:
		case http.StatusNoContent:
			continue
		default:
			return
		}
		for _, c := range claims.Rollouts {
			s.claimed.Store(port.RolloutID{Group: c.Group, Sample: c.Sample, Attempt: c.Attempt}, true)
			if !sample(c) {
				continue // it is not wanted any more, or the run has ended
			}
			reward := float32(c.Sample % 2)
			s.ask("/api/v1/rollouts/"+c.ID+"/finish", protocol.FinishRequest{Worker: "w", Secret: c.Secret, Reward: new(reward), Exact: reward == 1}, nil)
		}
	}
}

func (s *served) sample(c protocol.Claim) bool {
	if c.Sample%2 == 0 {
		request := map[string]any{"model": "any", "prompt": servedPrompt(c), "max_tokens": 32}
		return s.ask("/v1/completions", request, nil, "Authorization", "Bearer "+c.Key) == http.StatusOK
	}
	return s.ask("/api/v1/rollouts/"+c.ID+"/sample", protocol.SampleRequest{Worker: "w", Secret: c.Secret, Prompt: servedPrompt(c), MaxTokens: 32}, nil) == http.StatusOK
}

// train makes the steps of the run, and returns the batches.
func (s *served) train(steps int) []*batchtest.Tensors {
	s.connect()
	return s.steps(steps)
}

// connect has the trainer be there.
func (s *served) connect() {
	s.t.Helper()
	var hello protocol.ConnectReply
	if status := s.ask("/api/v1/trainers/connect", protocol.ConnectRequest{Trainer: "t", Version: -1}, &hello); status != http.StatusOK {
		s.t.Fatalf("connect: %d", status)
	}
}

// steps makes train steps of the trainer that is connected, and returns the batches.
func (s *served) steps(steps int) []*batchtest.Tensors {
	s.t.Helper()
	var batches []*batchtest.Tensors
	for len(batches) < steps {
		tensors := s.leased()
		batches = append(batches, tensors)
		s.publish(tensors, byte(len(batches)))
	}
	return batches
}

func (s *served) publish(b *batchtest.Tensors, value byte) {
	s.t.Helper()
	content := tinyTensor(s.t, value)
	request := protocol.PublishRequest{
		Trainer: "t", Lease: b.Lease.Lease, Attempt: b.Lease.Attempt, Version: b.Lease.Version + 1, Kind: weights.KindFull, BaseVersion: loop.NoVersion,
		ForwardVersion: b.Lease.Version, StepVersion: b.Lease.Version, Files: []protocol.PublishFile{{Name: "policy.safetensors", Size: int64(len(content))}},
	}
	text, err := json.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, part := range []struct {
		name    string
		content []byte
	}{{"manifest", text}, {"policy.safetensors", content}} {
		field, err := form.CreateFormFile(part.name, part.name)
		if err == nil {
			_, err = field.Write(part.content)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		s.t.Fatal(err)
	}
	if status, text := s.call("/api/v1/weights", form.FormDataContentType(), body.Bytes()); status != http.StatusOK {
		s.t.Fatalf("publish: %d %s", status, text)
	}
}

const servedDocument = `
model: {path: %s}
engines: [%s]
environment: {name: numbers, prompt_tokens_max: 64, response_tokens_max: 32}
rollout: {group_size: 4}
train: {batch: 8}
queue: {policy: bounded, eta: 1}
trainer: {steps: %d}
store: {samples_every: 0}
failures: {max_attempts: 20}
`

// checkBatches holds every token that was trained on against what the weights of its version sample.
func checkBatches(t *testing.T, batches []*batchtest.Tensors) (versions map[loop.Version]int) {
	t.Helper()
	versions = map[loop.Version]int{}
	for _, b := range batches {
		for i := range b.Rollouts() {
			first, last := b.Offsets[i], b.Offsets[i+1]
			at := first + int64(slices.Index(b.LossMask[first:last], 1))
			g := port.Generation{Tokens: b.Tokens[at:last], Logprobs: b.Logprobs[at:last]}
			for _, v := range b.Versions[at:last] {
				g.Versions = append(g.Versions, loop.Version(v))
				versions[loop.Version(v)]++
			}
			g.Truncated = g.Tokens[len(g.Tokens)-1] != servedPolicy.EOS
			name := func(v loop.Version) string { return fmt.Sprintf("v%06d", v) }
			if err := servedPolicy.Check(b.Tokens[first:at], 32, g, name); err != nil {
				t.Errorf("lease %d, rollout %d: %v", b.Lease.Lease, i, err)
			}
		}
	}
	return versions
}

// A run over servers: weights are published, loaded and said by them, agents and workers sample, and every
// token that is trained on is what the weights of its version sample there.
func TestServeServers(t *testing.T) {
	const steps = 5
	dir := t.TempDir()
	a, b := policyServer(t, true), policyServer(t, false)
	seen := filepath.Join("/elsewhere", "weights")
	engines := fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 4}, {kind: vllm, name: b, url: %q, slots: 4, weights_dir: %s}", a.URL(), b.URL(), seen)
	s := startServe(t, dir, fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), engines, steps))
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(s.play)
	}
	batches := s.train(steps - 1)
	status := s.status() // before the run ends, and its engines with it
	batches = append(batches, s.steps(1)...)
	s.kill()
	workers.Wait()

	versions := checkBatches(t, batches)
	if len(versions) < 2 {
		t.Errorf("tokens of the versions %v were trained on: were weights ever changed?", versions)
	}
	if !slices.Contains(a.Updates(), "v000001") || !slices.Contains(b.Updates(), "v000001") {
		t.Errorf("the servers loaded %v and %v", a.Updates(), b.Updates())
	}
	if len(status.Engines) != 2 || status.Engines[0].Server == nil || status.Engines[0].Server.URL != a.URL() ||
		status.Engines[0].Server.Versions != "reported" || status.Engines[1].Server.Versions != "derived" {
		t.Errorf("the status has engines %+v", status.Engines)
	}
	newest := slices.Max(slices.Collect(maps.Keys(versions))) // a later one need not be loaded before the run ends
	view := filepath.Join(dir, "runs", "r", "weights", filepath.FromSlash(weights.ViewPath(newest)))
	if c, err := weights.ReadCheckpoint(view); err != nil || c.Vocabulary != servedPolicy.Vocabulary || !slices.Equal(c.Beside, []string{"config.json", "special_tokens.json", "tokenizer.json"}) {
		t.Errorf("the view of version %d is %+v, %v", newest, c, err)
	}
}

// What cannot become a run ends the start with exit code 2, and says what to do.
func TestServeServersRefusals(t *testing.T) {
	server := policyServer(t, true)
	engine := fmt.Sprintf("{kind: vllm, url: %q, slots: 4}", server.URL())
	for name, test := range map[string]struct{ model, engines, want string }{
		"no model":    {t.TempDir(), engine, "has no config.json"},
		"long prompt": {tinyModel(t, servedPolicy.Vocabulary), engine + "]\nx: [", "unknown key"},
		"no key":      {tinyModel(t, servedPolicy.Vocabulary), strings.TrimSuffix(engine, "}") + ", key_file: /nowhere/key}", "engines.0.key_file"},
	} {
		s := startServe(t, t.TempDir(), fmt.Sprintf(servedDocument, test.model, test.engines, 3))
		<-s.ended
		if code := s.cmd.ProcessState.ExitCode(); code != failure.ExitUsage || !strings.Contains(s.text(), test.want) {
			t.Errorf("%s: exit code %d, said %s, want 2 and %q", name, code, s.text(), test.want)
		}
	}
}

// A run that goes on has the model that it began with: a copy of its directory may stand elsewhere, or
// be gone, and another model is refused.
func TestServeServersKeepsItsModel(t *testing.T) {
	dir, model := t.TempDir(), tinyModel(t, servedPolicy.Vocabulary)
	server := policyServer(t, true)
	engine := fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 8}", server.URL())
	begin := func(model string) *served {
		return startServe(t, dir, fmt.Sprintf(servedDocument, model, engine, 3))
	}
	s := begin(model)
	s.claim()
	s.kill()

	s = begin(tinyModel(t, servedPolicy.Vocabulary+1))
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != failure.ExitUsage || !strings.Contains(s.text(), "is another model than the run has: its config.json differs") {
		t.Errorf("with another model: exit code %d, said %s", code, s.text())
	}
	for name, path := range map[string]string{"a copy": tinyModel(t, servedPolicy.Vocabulary), "a directory that is gone": filepath.Join(dir, "gone")} {
		s = begin(path)
		if got := s.claim().ID; got == "" {
			t.Errorf("with %s: no rollout", name)
		}
		s.kill()
	}
}
