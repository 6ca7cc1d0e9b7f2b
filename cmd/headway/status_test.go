package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/pages"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
)

// shownPlane is a control plane with a state of a test's choice.
type shownPlane struct{ state protocol.Status }

func (p *shownPlane) Status() protocol.Status                     { return p.state }
func (p *shownPlane) Engines() []protocol.EngineVersion           { return nil }
func (p *shownPlane) Ready() error                                { return nil }
func (p *shownPlane) Subscribe(ctx context.Context) <-chan []byte { return nil }

func busyStatus() protocol.Status {
	return protocol.Status{
		Run: "reverse", State: "running", Version: 17, Steps: 200, Policy: "bounded", Binding: "rollout", UptimeS: 3723,
		Ledger:   protocol.Ledger{Ledger: loop.Ledger{Admitted: 12045, InFlight: 60, Waiting: 12, Queued: 128, Leased: 128, Trained: 11700, Filtered: 10, Failed: 7}, Balanced: true},
		HeldOut:  &protocol.HeldOut{Version: 10, Accuracy: 0.4, Reward: 0.25, Scored: 5, Failed: 1, Oldest: 10, Newest: 11},
		Failures: protocol.Failures{Engine: 4, Environment: 2, Data: 1, InfraRatio: 0.0051, DataRatio: 0.001},
		Scoring:  []protocol.Scoring{{Channel: "teacher", Waiting: 3, Servers: []protocol.ScoringServer{{Name: "teacher-0", Running: 8, Slots: 8, Calls: 4100, Failures: 2, Seconds: 1025, LastError: "answers 500: out of memory"}, {Name: "teacher-1", Slots: 8}}}},
		Throughput: protocol.Throughput{ProductionRolloutsPerS: 31, EffectiveRolloutsPerS: 30, ConsumptionRolloutsPerS: 30.3, ConsumptionRolloutsPerWallS: 29, TokensPerS: 41000,
			PeriodS: 4.4, StepS: 4.2, TrainerIdleRatio: 0.03, RolloutIdleRatio: 0.01, QueueTrendGroupsPerStep: 0.5, Steps: 16},
		Queue:     protocol.Queue{Groups: 16, CapacityGroups: 32, HeldGroups: 1, LiveGroups: 20, BatchGroups: 16},
		Engines:   []protocol.Engine{{Name: "e0", Kind: "embedded", Version: 17, State: "serving", Active: 30, Slots: 32, Stages: []protocol.EngineVersion{{Stage: 1, Version: 16, State: "loading"}}}, {Name: "e1", Kind: "embedded", Version: 16, State: "lost", Slots: 32}},
		Trainer:   protocol.Trainer{Name: "torch", State: "training", Lease: 18, SilentS: 1.25, IdleRatio: 0.031, WorldSize: 2},
		Workers:   protocol.Workers{Known: 3, Claimed: 60, Offered: 4, Silent: []string{"w3"}},
		Staleness: protocol.Staleness{Mean: 1.4, PQS: 0.9, IQS: 0.5, P50: 1, P95: 3, Max: 4},
		Sync:      &protocol.Sync{Version: 17, LoadS: 0.031, WaitS: 0.002, SwitchS: 0.001, TotalS: 0.04},
		Recovery:  &protocol.Recovery{SnapshotSeq: 100, Events: 1234, WallS: 0.42, Takeover: true, Restarts: 2},
		Writer:    protocol.Writer{Name: "node-a", Epoch: 3},
		Disk:      protocol.Disk{LogBytes: 12 << 20, PayloadBytes: 34 << 20, WeightsBytes: 1 << 30, BytesMax: 9 << 30},
	}
}

// serveStatus serves a status with the real server and returns its address.
func serveStatus(t *testing.T, status protocol.Status, o api.Options) string {
	t.Helper()
	server, err := api.New(o, api.Ports{Plane: &shownPlane{status}})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewUnstartedServer(server.Handler())
	if o.TLS != nil {
		listener.TLS = o.TLS
		listener.StartTLS()
	} else {
		listener.Start()
	}
	t.Cleanup(listener.Close)
	return listener.URL
}

// askStatus runs headway status, and returns all that it has behind its answer.
func askStatus(t *testing.T, arguments ...string) (stdout, stderr string, code int) {
	t.Helper()
	t.Setenv("HEADWAY_TOKEN", "")
	var out, diagnostics bytes.Buffer
	code = Main(append([]string{"status", "--full"}, arguments...), strings.NewReader(""), &out, &diagnostics)
	stdout = out.String()
	if _, page, answered := strings.Cut(stdout, "\n\n"); answered {
		stdout = page
	}
	return stdout, diagnostics.String(), code
}

// The answer says how a run goes and what to do, in ten lines of a narrow terminal, whatever is wrong.
func TestStatusAnswers(t *testing.T) {
	long := strings.Repeat("worker w3 has held rollout 17 for long; ", 6)
	for want, change := range map[string]func(s *protocol.Status){
		"Run reverse, running, up 1h2m3s: version 17 of 200 train steps, 29.0 rollouts/s\ntrained": func(s *protocol.Status) {},
		"! the engines bind: the trainer waits for rollouts":                                       func(s *protocol.Status) { s.Engines, s.Workers = nil, protocol.Workers{} },
		"1. engine e1 is lost, of 2; worker w3 is silent":                                          func(s *protocol.Status) {},
		"1. no trainer has come yet": func(s *protocol.Status) {
			s.Engines, s.Workers, s.Trainer = nil, protocol.Workers{}, protocol.Trainer{State: "absent"}
		},
		"1. no trainer has come yet\n! the queue has been full for 14s, with 16 groups: engines wait for a trainer": func(s *protocol.Status) {
			s.Engines, s.Workers, s.Trainer, s.Queue.FullS = nil, protocol.Workers{}, protocol.Trainer{State: "absent"}, 14
		},
		"NO PROGRESS for 1m40s": func(s *protocol.Status) {
			s.Stall = &protocol.Stall{SinceS: 100, Findings: []protocol.Finding{{Message: long}, {Message: long}, {Message: long}, {Message: long}, {Message: long}}}
		},
		"1. engine e1 is lost, of 2; worker w3 is silent\n2. at version 3 the trainer's log-probs are 0.35 nats": func(s *protocol.Status) {
			s.Forward = &protocol.Finding{Code: "temperature", Message: "at version 3 the trainer's log-probs are 0.35 nats"}
		},
		"3. tools were offered in 64 turns": func(s *protocol.Status) {
			s.Gateway = &protocol.Gateway{Finding: &protocol.Finding{Code: "no_call", Message: "tools were offered in 64 turns"}}
			s.Forward = &protocol.Finding{Message: "other log-probs"}
		},
		"the ledger does not balance": func(s *protocol.Status) { s.Ledger.Balanced = false },
		"1. 12.0 % of the attempts fail by the infrastructure and are tried again": func(s *protocol.Status) {
			s.Engines, s.Workers, s.Failures.InfraRatio = nil, protocol.Workers{}, 0.12
		},
		"1. 7.0 % of the attempts have a task that cannot be played or judged": func(s *protocol.Status) {
			s.Engines, s.Workers, s.Failures.DataRatio, s.Failures.InfraRatio = nil, protocol.Workers{}, 0.07, 0.02
		},
	} {
		s := busyStatus()
		change(&s)
		text := firstOfStatus(s).Text(0)
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
		fitsAnswer(t, text)
	}
	_, out, _ := headway(t, "status", serveStatus(t, busyStatus(), api.Options{}))
	if !strings.HasPrefix(out, "Run reverse") || strings.Contains(out, "writer") || !strings.HasSuffix(out, "--json all.\n") {
		t.Errorf("without --full:\n%s", out)
	}
}

// What engines that are servers lack is said beside how to start them with it.
func TestStatusOfServers(t *testing.T) {
	status := busyStatus()
	status.Engines = []protocol.Engine{
		{Name: "e0", Kind: "vllm", Version: 17, State: "serving", Active: 3, Slots: 8, Server: &protocol.Server{URL: "http://a:8000", Software: "vLLM 0.32", State: "serving",
			Versions: "derived", Weights: "disk", Cache: "salt", Running: 3, Tokens: 900, Missing: []protocol.Missing{{What: "spans of versions: they are derived", Flag: "--enable-scale-out"}}}},
		{Name: "e1", Kind: "sglang", Cell: "b", Version: 16, State: "lost", Slots: 8, Server: &protocol.Server{URL: "http://b:30000", State: "down", Cause: "connection refused\x1b[2J", Weights: "disk", Retries: 2, Losses: 1}},
	}
	status.Gateway = &protocol.Gateway{Requests: 1300, Refused: 2, Open: 4, Turns: 1200, Aborted: 3, Tokens: 54321, Offered: 900, CallsMissed: 2,
		Finding: &protocol.Finding{Message: "no call was told"}}
	stdout, stderr, code := askStatus(t, serveStatus(t, status, api.Options{}))
	for _, want := range []string{`
gateway    1 200 turns of 54 321 tokens · 4 requests open · 0 calls of tools, 2 attempts that were
           none · 3 taken back · 2 refused
           no call was told
`, `
engines    e0 (vllm) serving at version 17, 3 of 8 slots busy
           at http://a:8000 · vLLM 0.32 · weights by disk · versions derived · old cache: salt
           spans of versions: they are derived (start it with --enable-scale-out)
           e1 (sglang, cell b) lost at version 16, 0 of 8 slots busy
           at http://b:30000 · weights by disk · 2 broken responses gone on with · lost 1 time
           down: connection refused?[2J
`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("got (exit %d, stderr %q)\n%swant in it\n%s", code, stderr, stdout, want)
		}
	}
}

// controlledStatus is a busy run's with a goal, in one of the controller's states.
func controlledStatus(state string) protocol.Status {
	status := busyStatus()
	said := &loop.ControlStatus{State: state, MeasuredMean: 2.41, MeasuredShare: 0.912, Steps: 512, HeldSteps: 480, HeldBatches: 430, Moves: 9, Settings: []loop.SettingStatus{
		{Name: "concurrency", Value: 96, Least: 8, Most: 128}, {Name: "live_groups", Value: 30, Least: 16, Most: 144}, {Name: "hold", Value: 0.3, Most: 0.3}}}
	switch state {
	case "settling":
		said.MeasuredMean, said.MeasuredShare, said.Steps, said.HeldSteps, said.HeldBatches = -1, -1, 0, 0, 0
	case "unreachable":
		said.Nearest, said.Binding = 2.2, "hold"
	}
	moves := &metrics.Control{Last: []metrics.Move{{Step: 3, Setting: "hold", From: 0, To: 0.1, Reason: "room"}, {Step: 12, Setting: "live_groups", From: 32, To: 30, Reason: "above-target"},
		{Step: 14, Setting: "hold", From: 0.1, To: 0.2, Reason: "expected"}, {Step: 16, Setting: "hold", From: 0.2, To: 0.3, Reason: "above-target"}}}
	status.Control = api.ControlOf(&loop.Control{Mean: 2, Share: 0.95, Within: 4, Tokens: true, Window: 32}, said, moves)
	return status
}

// A goal is said with what was measured of it, where settings stand and why they moved; what is wrong
// with it is said with what to do.
// The sender stands where the trainer does, also before a run has begun to admit.
func TestStatusOfASender(t *testing.T) {
	for want, sender := range map[string]protocol.Sender{
		"sender     torch (nccl) · holds versions 16, 17 · in groups with 2 engines\n": {Name: "torch", State: "serving", Backend: "nccl", Holds: []loop.Version{16, 17}, Groups: []string{"a", "b"}},
		"sender     torch (gloo) · holds no version · in groups with 0 engines\n":      {Name: "torch", State: "serving", Backend: "gloo"},
		"sender     torch · lost: last heard of 40.0 s ago; start its process again\n": {Name: "torch", State: "lost", Holds: []loop.Version{17}, SilentS: 40},
		"           engines wait for it: e0, e1\n":                                     {State: "absent", Waiting: []string{"e0", "e1"}},
		"holds no version · in groups with 1 engine · last heard of 7.0 s ago\n":       {Name: "torch", State: "serving", Backend: "gloo", Groups: []string{"a"}, SilentS: 7},
		"           2 engines joining\n":                                               {Name: "torch", State: "serving", Joining: []protocol.SenderJoining{{Engine: "e0", ForS: 2}, {Engine: "e1", ForS: 1}}},
		"           2 engines joining: e1 has tried for 20.0 s to reach the sender at 10.0.0.7:29500; see": {Name: "torch", State: "serving", Joining: []protocol.SenderJoining{
			{Engine: "e0", ForS: 2}, {Engine: "e1", Address: "10.0.0.7:29500", ForS: 20, Late: true}}},
		"           1 engine joining: the sender was told 20.0 s ago to meet e1 and has": {Name: "torch", State: "serving", Joining: []protocol.SenderJoining{{Engine: "e1", ForS: 20, Late: true}}},
		"sender     absent: no process is there that has the trainer's weights;":         {State: "absent"},
	} {
		for _, s := range []protocol.Status{busyStatus(), {Run: "new", State: "running"}} {
			s.Sender = &sender
			if out, _, code := askStatus(t, serveStatus(t, s, api.Options{})); code != 0 || !strings.Contains(out, want) {
				t.Errorf("exit code %d, want %q in\n%s", code, want, out)
			}
		}
	}
}

func TestStatusOfAController(t *testing.T) {
	for state, want := range map[string]string{
		"keeping": `
target     mean staleness at most 2, and at least 95 % of tokens within 4 versions · held in 480 of
           512 train steps (93.8 %); single batches in 84.0 %
           held: mean 2.41, 91.2 % within 4
settings   concurrency 96 (8 to 128) · live_groups 30 (16 to 144) · hold 0.3 (0 to 0.3)
           step 12: live_groups 32 to 30, the goal did not hold
           step 14: hold 0.1 to 0.2, the closed form asks for it
           step 16: hold 0.2 to 0.3, the goal did not hold
`,
		"settling": `
           settling: nothing measured yet; judged over 32 train steps
`,
		"correcting": `
           not held: mean 2.41, 91.2 % within 4; settings move towards the goal
`,
		"unreachable": `
           out of reach: mean 2.41, 91.2 % within 4; 2.20 at best: hold is at the end of its limits.
           Ask for a target that can be reached, or widen control.limits.hold
`,
		"silent": `
           no measurement: no train step has ended for so long that there is nothing to go by, and
           settings stay where they are. Look at what the trainer waits for
`,
	} {
		stdout, stderr, code := askStatus(t, serveStatus(t, controlledStatus(state), api.Options{}))
		if !strings.Contains(stdout, want) {
			t.Errorf("%s: got (exit %d, stderr %q)\n%swant in it\n%s", state, code, stderr, stdout, want)
		}
	}
}

// The queue of a run that has made all its steps is what it left.
func TestStatusOfAFinishedRun(t *testing.T) {
	done := busyStatus()
	done.Steps = int(done.Version)
	stdout, _, _ := askStatus(t, serveStatus(t, done, api.Options{}))
	if !strings.Contains(stdout, "16 of 32 groups, left when the run ended\n") {
		t.Errorf("got\n%s", stdout)
	}
}

func TestStatusTable(t *testing.T) {
	stdout, stderr, code := askStatus(t, serveStatus(t, busyStatus(), api.Options{}))
	want := `health     engine e1 is lost, of 2; worker w3 is silent
           31.0 rollouts/s made, 30.0 of use -> queue 16/32 groups (+0.5 a step) -> 29.0/s trained
           the engines bind: the trainer waits for rollouts
           idle: trainer 3.0 %, engines 1.0 % · a step every 4.4 s, 4.2 s of it training
run        reverse · running · up 1h2m3s
version    17 of 200 train steps
queue      [##########..........] 16 of 32 groups; a batch takes 16
           20 groups open, 1 held back
rollouts   60 in flight · 12 waiting for their group · 128 queued · 128 leased
ended      11 700 trained · 10 filtered · 7 failed of 12 045 admitted
failed     0.5 % infrastructure: 4 engine, 2 environment, 0 timeout, 0 other · 0.1 % data: 1 attempt
trainer    torch · training · batch 18 · 2 ranks · last heard of 1.2 s ago · idle 3 %
workers    3 known · 60 rollouts claimed · 4 wait for one · silent: w3
teacher    teacher-0 · 8 of 8 slots · 4 100 answers, each takes 250 ms · 2 failed, the last: answers
           500: out of memory
           teacher-1 · 0 of 8 slots · 0 answers
           3 sequences wait for a slot
staleness  mean 1.40 versions (0.90 before the queue, 0.50 in it), p95 3, most 4 · policy bounded
held out   mean reward 0.250, 40.0 % wholly right, of 5 prompts from version 10 on (sampled by 10 to
           11); 1 other could not be scored
engines    e0 (embedded) serving at version 17, 30 of 32 slots busy · stage 1 at 16 (loading)
           e1 (embedded) lost at version 16, 0 of 32 slots busy
sync       version 17 was served everywhere 40 ms after its publish (load 31 ms, wait 2 ms, switch 1
           ms)
disk       log 12 MiB and payloads 34 MiB of 9 GiB; weights 1 GiB
recovery   took 420 ms: a snapshot and 1 234 events after it · taken over from another process · the
           run's 2 recoveries in all
writer     node-a, epoch 3
`
	if stdout != want || stderr != "" || code != 0 {
		t.Errorf("got (exit %d, stderr %q)\n%s", code, stderr, stdout)
	}
}

// Who is missing stands first, before rates that were; what binds is said of a run that goes on.
func TestStatusSaysFirstWhoIsMissing(t *testing.T) {
	for want, change := range map[string]func(s *protocol.Status){
		"health     engine e1 is lost: no rollouts are made until it is back\n           in the steps before: 31.0 rollouts/s made": func(s *protocol.Status) { s.Engines = s.Engines[1:] },
		"health     engines e0, e1 are lost: no rollouts are made until one is back\n":                                              func(s *protocol.Status) { s.Engines[0].State = "quarantined" },
		"health     engine e1 is lost: no rollouts are made until it is back\n           rates are known from the second": func(s *protocol.Status) {
			s.Engines, s.Throughput = []protocol.Engine{s.Engines[1], {Name: "e2", State: "away"}}, protocol.Throughput{}
		},
		"health     trainer torch is gone, last heard of 1.2 s ago\n": func(s *protocol.Status) { s.Engines, s.Trainer.State = s.Engines[:1], "absent" },
		"health     engine e1 is lost: no rollouts are made until it is back; cell b has not been heard yet\n": func(s *protocol.Status) {
			s.Engines, s.Cells = s.Engines[1:], []protocol.Cell{{Name: "b", SilentS: -1}, {Name: "c", SilentS: 5}, {Name: "d", SilentS: -1, Away: true}}
		},
		"health     cell b is silent for 9.0 s, and newer weights wait for it; cell c is silent for 20.0 s\n": func(s *protocol.Status) {
			s.Engines, s.Cells = s.Engines[:1], []protocol.Cell{{Name: "b", SilentS: 9}, {Name: "c", SilentS: 20}}
		},
		"health     no trainer has come yet\n":                         func(s *protocol.Status) { s.Engines, s.Trainer = nil, protocol.Trainer{State: "absent"} },
		"health     no worker is there, and 4 rollouts wait for one\n": func(s *protocol.Status) { s.Engines, s.Workers = nil, protocol.Workers{Offered: 4} },
		"health     no sender of weights is there, and 1 engine waits for it": func(s *protocol.Status) {
			s.Engines, s.Sender = nil, &protocol.Sender{State: "absent", Waiting: []string{"e0"}}
		},
		"health     31.0 rollouts/s made": func(s *protocol.Status) { s.Engines, s.State, s.Trainer.State = nil, "stopped", "absent" },
	} {
		s := busyStatus()
		s.Workers = protocol.Workers{Known: 1}
		change(&s)
		_, stands := missingText(s)
		out, _, code := askStatus(t, serveStatus(t, s, api.Options{}))
		if code != 0 || !strings.HasPrefix(out, want) || stands == strings.Contains(out, "bind: ") {
			t.Errorf("exit code %d, want first %q in\n%s", code, want, out)
		}
		v, _ := topOf(s)
		v.width, v.height = 50, 40
		if words, _ := missingText(s); !strings.Contains(strings.Join(strings.Fields(v.text()), " "), words) {
			t.Errorf("no %q in\n%s", words, v.text())
		}
	}
}

// A stall stands before everything that is well; what a server says cannot command a terminal.
func TestStatusOfAStall(t *testing.T) {
	s := busyStatus()
	s.Run = "rev\x1b[2Jerse\u202e"
	s.State = "draining"
	s.Ledger.Balanced = false
	s.Disk.Full = true
	s.Stall = &protocol.Stall{SinceS: 100, Findings: []protocol.Finding{{Code: "no_trainer", Message: "no trainer has ever connected. Start one"}, {Code: "queue_full", Message: "the queue\nis full"}}}
	stdout, _, code := askStatus(t, serveStatus(t, s, api.Options{}))
	for _, want := range []string{"rev?[2Jerse? · DRAINING", "STALLED    no progress for 1m40s\n           - no_trainer: no trainer has ever connected. Start one\n           - queue_full: the queue?is full\nqueue ", "health     engine e1 is lost, of 2; worker w3 is silent\n           nothing enters and nothing leaves for 1m40s\nrun ", "does not balance", "FULL: writes wait"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in (exit %d)\n%s", want, code, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") {
		t.Error("an escape reaches the terminal")
	}
}

// A bound on clients that binds is named, with what is taken of it; others are not.
func TestStatusOfABound(t *testing.T) {
	status := busyStatus()
	status.Bounds = []protocol.Bound{{Name: "rollouts_bytes", Held: 3 << 30, Max: 3 << 30, Binding: true, Refused: 12}, {Name: "rollout_bytes", Held: 1, Max: 1 << 20}}
	out, stderr, code := askStatus(t, serveStatus(t, status, api.Options{}))
	if code != 0 || !strings.Contains(out, "BOUND      rollouts_bytes binds: 3 GiB of 3 GiB taken, 12 refused so far\n") || strings.Contains(out, "rollout_bytes") {
		t.Errorf("%d %s\n%s", code, stderr, out)
	}
}

// A weight sync that waits for an engine is said before what is well; a stall says it in its own words.
func TestStatusOfASyncThatIsHeldUp(t *testing.T) {
	s := busyStatus()
	s.Held = &protocol.Finding{Code: "engine_paused", Subject: "e1", Message: "engine e1 has been loading version 18 for 25s."}
	want := "train steps\nHELD UP    engine e1 has been loading version 18 for 25s.\nqueue "
	if out, _, code := askStatus(t, serveStatus(t, s, api.Options{})); code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit code %d, want %q in\n%s", code, want, out)
	}
	s.Stall = &protocol.Stall{SinceS: 60, Findings: []protocol.Finding{*s.Held}}
	if out, _, _ := askStatus(t, serveStatus(t, s, api.Options{})); strings.Contains(out, "HELD UP") || strings.Count(out, "version 18") != 1 {
		t.Errorf("it is said twice:\n%s", out)
	}
}

// Nothing is wider than a narrow terminal, colours not counted.
func TestStatusFitsNarrowTerminals(t *testing.T) {
	s := busyStatus()
	s.Stall = &protocol.Stall{SinceS: 100, Findings: []protocol.Finding{{Code: "no_trainer", Message: "no trainer has ever connected. Start one"}}}
	for range 30 {
		s.Engines = append(s.Engines, protocol.Engine{Name: "e", State: "serving"})
	}
	for _, width := range []int{40, 60, 99} {
		for _, colour := range []bool{false, true} {
			var out bytes.Buffer
			v := &statusView{to: &out, width: width, full: true, live: true, colour: colour}
			if err := v.show(s, false); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.NewReplacer("\n", "", "\x1b[1;31m", "", "\x1b[0m", "").Replace(line)); n > width {
					t.Errorf("width %d: %d characters: %q", width, n, line)
				}
			}
			if strings.Contains(out.String(), "\x1b") != colour || !utf8.Valid(out.Bytes()) {
				t.Errorf("colour %v: %q", colour, out.String())
			}
			if !strings.Contains(out.String(), "and 16 more") {
				t.Errorf("engines are not counted: %s", out.String())
			}
		}
	}
}

func TestStatusJSON(t *testing.T) {
	stdout, _, code := askStatus(t, "--json", serveStatus(t, busyStatus(), api.Options{}))
	var s protocol.Status
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != 0 || s.Ledger.Trained != 11700 || s.Sync.Version != 17 {
		t.Errorf("exit %d, %v: %s", code, err, stdout)
	}
}

// Whatever is at the other end, what is wrong and what to do are said.
func TestStatusErrors(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello") }))
	defer other.Close()
	object := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"ok"}`) }))
	defer object.Close()
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	elsewhere := httptest.NewServer(http.RedirectHandler("http://example.org/", http.StatusFound))
	defer elsewhere.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	closed.Close()
	tokens, err := api.ParseTokens(strings.NewReader("viewer 0123456789abcdef\ntrainer fedcba9876543210"))
	if err != nil {
		t.Fatal(err)
	}
	guarded := serveStatus(t, busyStatus(), api.Options{Tokens: tokens})
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		arguments []string
		code      int
		says      string
	}{
		"nobody":         {[]string{nobody}, 1, "nothing listens at http://" + nobody + ": connection refused\n  start one with headway serve"},
		"a page":         {[]string{other.URL}, 1, "is not a control plane of headway"},
		"an object":      {[]string{object.URL}, 1, "is not a control plane of headway"},
		"404":            {[]string{missing.URL}, 1, "is not a control plane of headway"},
		"redirect":       {[]string{elsewhere.URL}, 1, "is not a control plane of headway"},
		"TLS by http":    {[]string{strings.Replace(secure.URL, "https", "http", 1)}, 1, "serves TLS\n  it answers to https://"},
		"http by TLS":    {[]string{strings.Replace(other.URL, "http", "https", 1)}, 1, "does not speak TLS"},
		"unknown signer": {[]string{secure.URL}, 1, "--ca FILE"},
		"no token":       {[]string{guarded}, 1, "asks for a token\n  name one with --token-file"},
		"wrong token":    {[]string{guarded, "--token-file", file("not-a-known-token")}, 1, "does not know the token"},
		"token file":     {[]string{guarded, "--token-file", file("# nothing")}, 2, "has no token"},
		"no token file":  {[]string{guarded, "--token-file", "/no/such"}, 2, "no such file"},
		"right token":    {[]string{guarded, "--token-file", file("0123456789abcdef\n")}, 0, ""},
		"server's file":  {[]string{guarded, "--token-file", file("trainer fedcba9876543210\nviewer 0123456789abcdef\n")}, 0, ""},
		"no address":     {[]string{"http://"}, 2, "is not the address"},
		"a secret in it": {[]string{"http://user:pass@host"}, 2, "is not the address"},
		"another scheme": {[]string{"ftp://host"}, 2, "is not the address"},
		"a folder":       {[]string{t.TempDir()}, 2, "no control plane was started there"},
		"every":          {[]string{guarded, "--every", "0"}, 2, "--every 0"},
		"no CA":          {[]string{secure.URL, "--ca", file("x")}, 2, "holds no PEM certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := askStatus(t, c.arguments...)
			if code != c.code || !strings.Contains(stderr, c.says) {
				t.Errorf("exit %d, want %d; stderr %q, want %q", code, c.code, stderr, c.says)
			}
			if strings.Contains(stderr, "0123456789abcdef") || code != 0 && stdout != "" {
				t.Errorf("said %q and %q", stdout, stderr)
			}
		})
	}
}

// An address comes from the run directory, too, and TLS is trusted by --ca.
func TestStatusOfARunDirectory(t *testing.T) {
	source := httptest.NewUnstartedServer(nil)
	source.StartTLS()
	certificate := source.TLS.Certificates[0]
	source.Close()
	address := serveStatus(t, busyStatus(), api.Options{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}})
	dir := t.TempDir()
	said, _ := json.Marshal(map[string]any{"url": address, "pid": 1})
	ca := filepath.Join(dir, "ca.pem")
	for path, text := range map[string][]byte{filepath.Join(dir, origin.AddressFile): said, ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, code := askStatus(t, dir, "--ca", ca)
	if code != 0 || !strings.Contains(stdout, "31.0 rollouts") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// Where a run has ended, its directory does not lead to another run that listens where it did.
func TestStatusOfARunThatHasEnded(t *testing.T) {
	address := serveStatus(t, busyStatus(), api.Options{})
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, c := range map[string]struct {
		url, run, says string
		code           int
		finished       *loop.Version
	}{
		"finished":                  {gone.URL, "one", "run one has finished at version 10\n", 1, new(loop.Version(10))},
		"finished, another answers": {address, "one", "run one has finished at version 10\n", 1, new(loop.Version(10))},
		"its own":                   {address, busyStatus().Run, "", 0, nil},
		"another":                   {address, "one", "run one does not go on: run " + busyStatus().Run + " answers", 1, nil},
		"nothing listens":           {gone.URL, "one", "run one does not go on: nothing listens", 1, nil},
		"of before":                 {address, "", "", 0, nil},
	} {
		dir := t.TempDir()
		said, _ := json.Marshal(map[string]any{"url": c.url, "run": c.run, "pid": 1, "finished": c.finished})
		if err := os.WriteFile(filepath.Join(dir, trace.FileName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, origin.AddressFile), said, 0o600); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := askStatus(t, dir)
		if code != c.code || !strings.Contains(stderr, c.says) || code != 0 && (stdout != "" || !strings.Contains(stderr, "headway view "+dir)) {
			t.Errorf("%s: exit %d, said %q and %q", name, code, stdout, stderr)
		}
	}
}

// Watching goes on while the server is away, and ends with the context.
func TestStatusWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked++; asked {
		case 2:
			w.WriteHeader(http.StatusBadGateway)
			return
		case 4:
			cancel()
		}
		_ = json.NewEncoder(w).Encode(busyStatus())
	}))
	defer server.Close()
	var out, diagnostics bytes.Buffer
	a := &app.Process{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &diagnostics, IsTerminal: func(s any) bool { return s == io.Writer(&out) },
		Getenv: func(string) string { return "" }, Now: time.Now}
	c := &statusCmd{Server: server.URL, Watch: true, Every: 0.1}
	client, err := newStatusClient(a, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.look(ctx, a, client); err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), "\x1b[H\x1b[2J"); n != 2 || !strings.Contains(diagnostics.String(), "not a control plane") {
		t.Errorf("showed %d times, said %q", n, diagnostics.String())
	}
}

// A path that is no directory is no host to ask for, and pages of a run are no control plane.
func TestStatusOfWhatIsNoControlPlane(t *testing.T) {
	reader, err := trace.NewReader(strings.NewReader(traceText(t, "live")))
	if err != nil {
		t.Fatal(err)
	}
	shown := compare.ViewOptions("a", reader.Header)
	shown.Info.Kind = "live"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- pages.Serve(ctx, listener, dashboard.New(shown).Handler(), "a token") }()
	defer func() { cancel(); <-served }()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := folderOf(t, t.TempDir(), map[string]string{"state/lock": "1\n", trace.FileName: traceText(t, "live")})
	for _, c := range []struct {
		given, says string
		code        int
	}{
		{"runs/ne", "the run directory runs/ne does not exist\n  runs are in another folder where --dir or store.dir names one", failure.ExitUsage},
		{"./ne", "the run directory ./ne does not exist", failure.ExitUsage},
		{"/no/such/run", "the run directory /no/such/run does not exist", failure.ExitUsage},
		{run, "is a run of headway run, which has no control plane\n  headway view " + run, failure.ExitUsage},
		{file, "is a file, no run directory", failure.ExitUsage},
		{url, url + " is the dashboard of headway run or headway view\n  open the link that it printed, or headway view or diagnose the run's directory", failure.ExitFailure},
		{listener.Addr().String() + "/", "is the dashboard of headway run", failure.ExitFailure},
	} {
		stdout, stderr, code := askStatus(t, c.given)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("status %s: exit %d, %q, want %q", c.given, code, stderr, c.says)
		}
	}
}
