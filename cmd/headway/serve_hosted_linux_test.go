package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/tinker/tinkertest"
	"github.com/headway-rl/headway/loop"
)

// hostedModel is a model's directory as far as a run at a service reads it: there are no weights in it.
func hostedModel(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// hostedConfig describes the base model of these tests.
const hostedConfig = `{"vocab_size": 64, "max_position_embeddings": 256, "eos_token_id": 4}`

// hostedService is a service that other processes reach, and that can be away.
type hostedService struct {
	*tinkertest.Service
	t       *testing.T
	address string
	server  *http.Server
}

func startHosted(t *testing.T, o tinkertest.Options) *hostedService {
	t.Helper()
	o.Vocabulary = 64
	h := &hostedService{Service: tinkertest.New(o), t: t, address: "127.0.0.1:0"}
	h.comeBack()
	t.Cleanup(func() { h.goAway(); h.Service.Close() })
	return h
}

// comeBack has it answer, at the address that it had.
func (h *hostedService) comeBack() {
	h.t.Helper()
	listener, err := net.Listen("tcp", h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	server := &http.Server{Handler: h.Service}
	h.address, h.server = listener.Addr().String(), server
	go func() { _ = server.Serve(listener) }() // it ends with goAway
}

// goAway ends its connections.
func (h *hostedService) goAway() { _ = h.server.Close() }

func (h *hostedService) url() string { return "http://" + h.address }

// count is how often it has executed an operation.
func (h *hostedService) count(operation string) (n int) {
	for _, e := range h.Executed() {
		if e.Operation == operation {
			n++
		}
	}
	return n
}

const hostedDocument = `
model: {path: %s}
engines: [{kind: tinker, name: cloud, url: %q, slots: 8, piece_tokens: 4%s}]
environment: {name: numbers, prompt_tokens_max: 64, response_tokens_max: 32}
rollout: {group_size: 4}
train: {batch: 8}
queue: {policy: bounded, eta: 1}
trainer: {steps: %d, adapter_rank: 4}
store: {samples_every: 0}
failures: {max_attempts: 20}
`

// playing has workers play the rollouts of a control plane until its run ends.
func (s *served) playing() (ended *sync.WaitGroup) {
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(s.play)
	}
	return &workers
}

// outcome waits until the run has ended and its workers were told so, and reads what it came to.
func (s *served) outcome(workers *sync.WaitGroup) protocol.Status {
	s.t.Helper()
	select {
	case <-s.over:
		workers.Wait()
	case <-s.ended:
	}
	return s.final()
}

// reaches waits until a run's version is at least one.
func (s *served) reaches(version loop.Version) protocol.Status {
	s.t.Helper()
	for {
		if status := s.status(); status.Version >= version {
			return status
		}
		select {
		case <-s.ended:
			s.t.Fatalf("it ended before version %d:\n%s", version, s.text())
		default:
		}
	}
}

// A run whose engine and trainer are a service: versions are made, saved, sampled from and let go there, every token
// that is trained on was sampled there, and what looks at the run says so.
func TestServeHosted(t *testing.T) {
	const steps = 6
	dir := t.TempDir()
	service := startHosted(t, tinkertest.Options{Order: tinkertest.Strict, Key: "secret"})
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, dir, fmt.Sprintf(hostedDocument, hostedModel(t, hostedConfig), service.url(), ", key_file: "+key, steps), "--json")
	workers := s.playing()
	status := s.reaches(2)
	s.refusesWeights()
	final := s.outcome(workers)

	if final.Version != steps || !final.Ledger.Balanced || final.Ledger.Trained != 8*steps || final.Trainer.State != plane.TrainerService {
		t.Errorf("it ended with %+v", final)
	}
	if e := status.Engines; len(e) != 1 || e[0].Kind != "tinker" || e[0].Server == nil || e[0].Server.URL != service.url() || e[0].Server.Software != "Tinker's API, test/base" ||
		e[0].Server.Versions != "reported" || e[0].Server.Weights != "service" || status.Disk.WeightsBytes != 0 {
		t.Errorf("the status has engines %+v", e)
	}
	if optim, saved := service.count("optim_step"), service.count("save_weights_for_sampler"); optim != steps || saved != steps+1 || service.count("save_weights") != steps+1 {
		t.Errorf("the service has executed %v", service.Operations())
	}
	checkHosted(t, service)
	if kept := len(service.Paths()); kept >= 2*(steps+1) {
		t.Errorf("%d paths are saved, so that none was let go: %v", kept, service.Paths())
	}
	if strings.Contains(s.text(), "secret") {
		t.Error("the key was said")
	}
	if code, _, stderr := headway(t, "weights", filepath.Join(dir, "runs", "r")); code != failure.ExitUsage || !strings.Contains(stderr, "version 6 is the newest") {
		t.Errorf("headway weights: exit code %d, %s", code, stderr)
	}
}

// refusesWeights asks for what a run at a service has not got.
func (s *served) refusesWeights() {
	s.t.Helper()
	if code, text := s.call("/api/v1/weights/latest", "", nil); code != http.StatusNotFound || !strings.Contains(string(text), "a run that keeps weights") {
		s.t.Errorf("the newest weights are answered with %d %s", code, text)
	}
	chat := []byte(`{"model": "any", "messages": [{"role": "user", "content": "hello"}]}`)
	var claims protocol.Claims
	for s.ask("/api/v1/rollouts/claim", protocol.ClaimRequest{Worker: "chat", Max: 1, WaitS: 5}, &claims) == http.StatusNoContent {
	}
	for _, c := range claims.Rollouts {
		if code, text := s.call("/v1/chat/completions", "application/json", chat, "Authorization", "Bearer "+c.Key); code != http.StatusBadRequest || !strings.Contains(string(text), "gateway.template") {
			s.t.Errorf("a chat is answered with %d %s", code, text)
		}
		if s.sample(c) {
			s.ask("/api/v1/rollouts/"+c.ID+"/finish", protocol.FinishRequest{Worker: "chat", Secret: c.Secret, Reward: new(float32(0))}, nil)
		}
	}
}

// checkHosted holds what a service has executed against what a run is to ask: samples of several versions, no piece
// longer than asked for, and rows to train on that begin with a prompt that was sampled from.
func checkHosted(t *testing.T, service *hostedService) {
	t.Helper()
	paths, prompts := map[string]bool{}, map[string]bool{}
	pieces, trained := 0, 0
	for _, e := range service.Executed() {
		switch e.Operation {
		case "asample":
			paths[e.Name] = true
			prompts[fmt.Sprint(e.Tokens[0][:3])] = true
			if len(e.Tokens[0]) > 3 {
				pieces++
			}
		case "forward_backward":
			for _, row := range e.Tokens {
				trained++
				if !prompts[fmt.Sprint(row[:3])] {
					t.Errorf("%v was trained on, and nothing was sampled after its prompt", row)
				}
			}
		}
	}
	if len(paths) < 3 || pieces == 0 || trained == 0 {
		t.Errorf("sampled from %d versions, %d times to go on with a response; trained on %d", len(paths), pieces, trained)
	}
}

// A run goes on after its control plane was killed, at whatever place: from the newest version, whose state
// another adapter takes over. It refuses another base model and another vocabulary, and needs the model's directory no more.
func TestServeHostedGoesOn(t *testing.T) {
	const steps = 6
	dir, model := t.TempDir(), hostedModel(t, hostedConfig)
	service := startHosted(t, tinkertest.Options{Order: tinkertest.ByArrival, Encoding: tinkertest.JSON, Undeletable: true})
	document := func(model, more string) string { return fmt.Sprintf(hostedDocument, model, service.url(), more, steps) }
	s := startServe(t, dir, document(model, ""))
	workers := s.playing()
	s.reaches(2)
	s.kill()
	workers.Wait()

	for want, changed := range map[string]string{
		`is no base model of the service: "other" (allowed: test/base)`: document(model, ", served_model: other"),
		"is another model than the run has":                             document(hostedModel(t, strings.Replace(hostedConfig, "64", "65", 1)), ""),
	} {
		refused := startServe(t, dir, changed)
		<-refused.ended
		if code := refused.cmd.ProcessState.ExitCode(); code != failure.ExitUsage || !strings.Contains(refused.text(), want) {
			t.Errorf("exit code %d, said %s, want 2 and %q", code, refused.text(), want)
		}
	}
	newest := newestRecord(t, dir)
	before := service.count("load_weights")
	s = startServe(t, dir, document(filepath.Join(dir, "gone"), ""), "--json")
	workers = s.playing()
	final := s.outcome(workers)
	if final.Version != steps || !final.Ledger.Balanced || final.Recovery == nil {
		t.Errorf("it ended with %+v", final)
	}
	loaded := slices.DeleteFunc(service.Executed(), func(e tinkertest.Executed) bool { return e.Operation != "load_weights" })
	if len(loaded) != before+1 || loaded[before].Name != newest.State {
		t.Errorf("loaded %+v, want %s once", loaded, newest.State)
	}
	if strings.Count(s.text(), "versions pile up there") != 1 {
		t.Errorf("that the service deletes nothing is not said once:\n%s", s.text())
	}
}

// record is a version's, as a run directory has it.
type hostedRecord struct {
	Version        loop.Version
	Sampler, State string
}

func newestRecord(t *testing.T, dir string) (newest hostedRecord) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "runs", "r", parts.HostedDir, "v*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %d versions", err, len(files))
	}
	text, err := os.ReadFile(slices.Max(files))
	if err == nil {
		err = json.Unmarshal(text, &newest)
	}
	if err != nil {
		t.Fatal(err)
	}
	return newest
}

// A service that goes away and comes back, its memory of sessions and models gone and what it had saved there, costs
// no rollout its tokens and no step its place: the run waits, says so, and goes on.
func TestServeHostedServiceGoesAway(t *testing.T) {
	const steps = 6
	dir := t.TempDir()
	service := startHosted(t, tinkertest.Options{})
	s := startServe(t, dir, fmt.Sprintf(hostedDocument, hostedModel(t, hostedConfig), service.url(), ", silent_s: 0.2", steps), "--json")
	workers := s.playing()
	s.reaches(2)
	service.goAway()
	for status := s.status(); status.Engines[0].State == "serving" && status.Engines[0].Server.State == "serving"; status = s.status() {
	}
	service.Forget()
	service.comeBack()
	final := s.outcome(workers)
	if final.Version != steps || !final.Ledger.Balanced || final.Ledger.Trained != 8*steps {
		t.Errorf("it ended with %+v", final)
	}
	checkHosted(t, service)
}

// A service that is started after the run is waited for, and what is no service for it ends the start.
func TestServeHostedWaitsForItsService(t *testing.T) {
	dir := t.TempDir()
	service := startHosted(t, tinkertest.Options{Key: "secret"})
	wrong := filepath.Join(dir, "wrong")
	if err := os.WriteFile(wrong, []byte("guess"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := http.Server{Handler: http.NotFoundHandler()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = other.Serve(listener) }() // it ends with Close
	t.Cleanup(func() { _ = other.Close() })
	model := hostedModel(t, hostedConfig)
	for name, test := range map[string]struct{ document, want string }{
		"wrong key":   {fmt.Sprintf(hostedDocument, model, service.url(), ", key_file: "+wrong, 3), "is no service for this run"},
		"no service":  {fmt.Sprintf(hostedDocument, model, "http://"+listener.Addr().String(), "", 3), "is no service for this run"},
		"no key file": {fmt.Sprintf(hostedDocument, model, service.url(), ", key_file: /nowhere/key", 3), "engines.0.key_file"},
		"no end":      {fmt.Sprintf(hostedDocument, hostedModel(t, `{"vocab_size": 64, "max_position_embeddings": 256}`), service.url(), "", 3), "eos_token_id"},
		"no model":    {fmt.Sprintf(hostedDocument, t.TempDir(), service.url(), "", 3), "has no config.json"},
	} {
		s := startServe(t, t.TempDir(), test.document)
		<-s.ended
		if code := s.cmd.ProcessState.ExitCode(); code != failure.ExitUsage || !strings.Contains(s.text(), test.want) {
			t.Errorf("%s: exit code %d, said %s, want 2 and %q", name, code, s.text(), test.want)
		}
	}

	late := startHosted(t, tinkertest.Options{})
	late.goAway()
	s := startServe(t, t.TempDir(), fmt.Sprintf(hostedDocument, model, late.url(), "", 1), "--json")
	for !strings.Contains(s.status().Waits, "the service to answer") {
	}
	late.comeBack()
	workers := s.playing()
	if final := s.outcome(workers); final.Version != 1 {
		t.Errorf("it ended with %+v", final)
	}
}

// Doctor asks the service what the start would.
func TestDoctorOfAService(t *testing.T) {
	service := startHosted(t, tinkertest.Options{Key: "secret"})
	dir := t.TempDir()
	for name, text := range map[string]string{"right": "secret", "wrong": "guess"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	examine := func(model, url, more string) string {
		_, d, keys := diagnosed(t, document(t, fmt.Sprintf(hostedDocument, model, url, more, 3)))
		for _, f := range d.Findings {
			keys = append(keys, f.What)
		}
		return strings.Join(keys, "\n")
	}
	model, right := hostedModel(t, hostedConfig), ", key_file: "+filepath.Join(dir, "right")
	away := startHosted(t, tinkertest.Options{})
	away.goAway()
	for _, test := range []struct{ name, model, url, more, want string }{
		{"sound", model, service.url(), right, "info pieces engines"},
		{"wrong key", model, service.url(), ", key_file: " + filepath.Join(dir, "wrong"), "error engine-kind engines"},
		{"no key", model, service.url(), ", key_file: " + filepath.Join(dir, "none"), "error engine-unreachable engines"},
		{"wrong model", model, service.url(), right + ", served_model: other", `no base model of the service: "other" (it has test/base)`},
		{"away", model, away.url(), "", "connection refused"},
		{"no end", hostedModel(t, `{"vocab_size": 64, "max_position_embeddings": 256}`), service.url(), right, "does not say which tokens end a response"},
	} {
		got := examine(test.model, test.url, test.more)
		if !strings.Contains(got, test.want) || test.name == "sound" && strings.Contains(got, "error") {
			t.Errorf("%s: found\n%s\nwant %q", test.name, got, test.want)
		}
	}
}
