package main

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/api/apitest"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// wrongTokens are the secrets of a server's token file, by role.
var wrongTokens = map[string]string{
	"trainer": "trainer-0123456789abcdef0123456789abcdef", "environment": "environment-0123456789abcdef0123456789", "engine": "engine-0123456789abcdef0123456789abcdef",
	"viewer": "viewer-0123456789abcdef0123456789abcdef", "admin": "admin-0123456789abcdef0123456789abcdef0",
}

// resources are what a process holds, as its metrics say.
type resources struct{ goroutines, descriptors, memory, heap float64 }

func (s *served) resources() (r resources) {
	s.t.Helper()
	_, text := s.call("/metrics", "", nil)
	for name, to := range map[string]*float64{"go_goroutines": &r.goroutines, "process_open_fds": &r.descriptors, "process_resident_memory_bytes": &r.memory, "go_memstats_heap_inuse_bytes": &r.heap} {
		*to = math.NaN()
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				*to, _ = strconv.ParseFloat(strings.TrimSpace(value), 64) // NaN fails the comparison
			}
		}
	}
	return r
}

// Whatever is asked of a control plane that is at work, by whomever, it answers with a refusal that says why. It loses
// nothing, trains on nothing twice, and holds as much afterwards as before. HEADWAY_LONG makes 10⁵ requests with and without tokens.
func TestWrongRequests(t *testing.T) {
	skipShort(t)
	requests := 1000
	if os.Getenv("HEADWAY_LONG") != "" {
		requests = 100_000
	}
	for _, tokens := range []map[string]string{nil, wrongTokens} {
		t.Run(fmt.Sprintf("%d roles", len(tokens)), func(t *testing.T) { checkWrongRequests(t, tokens, requests) })
	}
}

func checkWrongRequests(t *testing.T, tokens map[string]string, requests int) {
	dir := t.TempDir()
	engine := fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 16}", policyServer(t, true).URL())
	arguments := []string{"--json", "--set", "server.claim_s=600"}
	if tokens != nil {
		var lines strings.Builder
		for _, role := range slices.Sorted(maps.Keys(tokens)) {
			fmt.Fprintln(&lines, role, tokens[role])
		}
		file := filepath.Join(dir, "tokens")
		if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		arguments = append(arguments, "--token-file", file)
	}
	s := startServe(t, dir, fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), engine, 1_000_000_000), arguments...)
	s.token = tokens["admin"]
	own := s.claim()
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(s.play)
	}
	s.connect()
	batches := s.steps(2)

	table, err := os.ReadFile("../../docs/reference/access.md")
	if err != nil {
		t.Fatal(err)
	}
	routes, err := apitest.Routes(string(table))
	if err != nil {
		t.Fatal(err)
	}
	target := apitest.Target{URL: s.url, Routes: routes, Tokens: tokens, Rollout: own.ID, Key: own.Key, Secret: own.Secret}
	apitest.Send(t.Context(), target, 2, min(requests, 2000)/4, 8) // what is made once is there before it is measured
	before := s.resources()
	var report *apitest.Report
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		report = apitest.Send(t.Context(), target, 1, requests, 8)
	}()
	for open := true; open; {
		batches = append(batches, s.steps(1)...)
		select {
		case <-sent:
			open = false
		default:
		}
	}
	after := s.settles(before, &batches)
	t.Logf("%s", report)
	t.Logf("goroutines %.0f and then %.0f, descriptors %.0f and %.0f, resident memory %.1f and %.1f MB, heap %.1f and %.1f MB; %d train steps beside it", before.goroutines, after.goroutines,
		before.descriptors, after.descriptors, before.memory/1e6, after.memory/1e6, before.heap/1e6, after.heap/1e6, len(batches))
	for _, fault := range report.Faults {
		t.Error(fault)
	}
	if report.Requests < requests-8 || report.Cut > report.Requests/10 {
		t.Errorf("%d requests of %d, %d of them without an answer", report.Requests, requests, report.Cut)
	}
	if !(after.goroutines <= before.goroutines+8 && after.descriptors <= before.descriptors+8) {
		t.Errorf("%+v before, %+v after", before, after)
	}
	s.checkWhole(&workers, own, batches)
}

// settles makes train steps until connections that were left are closed, and returns what is held then. A stream whose
// client has gone is noticed when something is written to it.
func (s *served) settles(before resources, batches *[]*batchtest.Tensors) (now resources) {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for range 1000 {
		if now = s.resources(); now.goroutines <= before.goroutines+8 && now.descriptors <= before.descriptors+8 {
			break
		}
		*batches = append(*batches, s.steps(1)...)
	}
	return now
}

// checkWhole ends a run and holds its ledger, its batches and its trace against each other.
func (s *served) checkWhole(workers *sync.WaitGroup, own protocol.Claim, batches []*batchtest.Tensors) {
	t := s.t
	t.Helper()
	reward := float32(1)
	if status := s.ask("/api/v1/rollouts/"+own.ID+"/touch", protocol.TouchRequest{Worker: "w", Secret: own.Secret}, nil); status != http.StatusOK {
		t.Errorf("the claim that was held all the time is answered with %d", status)
	}
	s.ask("/api/v1/rollouts/"+own.ID+"/finish", protocol.FinishRequest{Worker: "w", Secret: own.Secret, Reward: &reward}, nil)
	groups := map[loop.GroupID]bool{}
	for i, b := range batches {
		if b.Lease.Version != loop.Version(i) {
			t.Errorf("batch %d is of version %d", i, b.Lease.Version)
		}
		for _, stamp := range b.Lease.Stamps {
			if groups[stamp.Group] {
				t.Errorf("group %d was trained on twice", stamp.Group)
			}
			groups[stamp.Group] = true
		}
	}
	checkBatches(t, batches)
	s.killed.Store(true) // workers are cut off
	_ = s.cmd.Process.Signal(os.Interrupt)
	<-s.ended
	workers.Wait()
	status := s.final()
	if !status.Ledger.Balanced || status.Ledger.Trained != int64(4*len(groups)) || int(status.Version) != len(batches) || status.Ledger.Failed > 0 {
		t.Errorf("%d groups of 4 in %d batches, version %d, ledger %+v", len(groups), len(batches), status.Version, status.Ledger)
	}
	text, err := os.ReadFile(trace.Path(filepath.Join(s.dir, "runs", "r")))
	if err != nil {
		t.Fatal(err)
	}
	if report, err := replay.Verify(bytes.NewReader(text)); err != nil || report.Difference != nil {
		t.Errorf("the trace is not that of its decisions: %v, %+v", err, report)
	}
	if said := s.text(); strings.Contains(said, "defect") || strings.Contains(said, "panic") {
		t.Errorf("the server said %s", said)
	}
}
