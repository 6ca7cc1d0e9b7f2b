package player

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
)

// plane is the rollouts' side of a control plane that offers a few and then ends the run. It is a
// fake for what real ones do rarely: end claims, and refuse what was played.
type plane struct {
	mu       sync.Mutex
	offered  int
	touched  []time.Time
	finished []protocol.FinishRequest
	// wanted is asked at every touch; refuse answers calls to finish.
	wanted func() bool
	refuse func(protocol.FinishRequest) error
	// earlier are notes of a process before this one, noted those of this one, forsaken why it gave the rollout up.
	earlier, noted []string
	forsaken       []string
}

func (p *plane) Note(_ string, note json.RawMessage) { p.noted = append(p.noted, string(note)) }

func (p *plane) Notes(string) (notes []json.RawMessage) {
	for _, note := range p.earlier {
		notes = append(notes, json.RawMessage(note))
	}
	return notes
}

func (p *plane) Forsake(id string, why error) { p.forsaken = append(p.forsaken, id+": "+why.Error()) }

func (p *plane) Claim(context.Context, protocol.ClaimRequest) (protocol.Claims, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.offered == 0 {
		return protocol.Claims{}, protocol.ErrRunEnded
	}
	p.offered--
	return protocol.Claims{Rollouts: []protocol.Claim{{ID: fmt.Sprintf("g%d-s0-a1", p.offered+1), Prompt: 1, DeadlineS: 60}}}, nil
}

func (p *plane) Touch(context.Context, string, protocol.TouchRequest) (protocol.TouchReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.touched = append(p.touched, time.Now())
	return protocol.TouchReply{DeadlineS: 60, Wanted: p.wanted == nil || p.wanted()}, nil
}

func (p *plane) Finish(_ context.Context, _ string, req protocol.FinishRequest) (protocol.FinishReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		if err := p.refuse(req); err != nil {
			return protocol.FinishReply{}, err
		}
	}
	p.finished = append(p.finished, req)
	return protocol.FinishReply{Counted: true}, nil
}

// said is a gateway's answer with a text.
func said(text string) string {
	return fmt.Sprintf(`{"choices":[{"message":{"role":"assistant","content":%q},"finish_reason":"stop","headway":{"versions":[{"version":3},{"version":5}]}}],"usage":{"prompt_tokens":30,"completion_tokens":4}}`, text)
}

// world is a world that counts how often it was closed and may fail or meet a limit.
type world struct {
	act    func(ctx context.Context, m episode.Message) (episode.Answer, error)
	closed int
}

func (*world) Tools() json.RawMessage { return nil }
func (*world) Begin(context.Context, *taskset.Task) ([]json.RawMessage, error) {
	return nil, nil
}

func (w *world) Act(ctx context.Context, m episode.Message) (episode.Answer, error) {
	if w.act == nil {
		return episode.Answer{Done: true}, nil
	}
	return w.act(ctx, m)
}
func (w *world) Close(context.Context) error { w.closed++; return nil }

type judgeFunc func(context.Context, verifier.Case) (verifier.Verdict, error)

func (f judgeFunc) Verify(ctx context.Context, c verifier.Case) (verifier.Verdict, error) {
	return f(ctx, c)
}
func (judgeFunc) Close() error { return nil }

// fixture is players over fakes, and what they did.
type fixture struct {
	plane   *plane
	world   *world
	opt     Options
	records []episode.Record
	asked   []string
}

func newFixture(t *testing.T, gateway http.HandlerFunc) *fixture {
	f := &fixture{plane: &plane{offered: 1}, world: &world{}}
	began := time.Now()
	f.opt = Options{
		Rollouts: f.plane, Name: "players", Workers: 1, TurnsMax: 4, Timeout: time.Hour, Logf: t.Logf,
		Gateway: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			f.asked = append(f.asked, r.Header.Get(protocol.RolloutHeader)+" "+string(body))
			gateway(w, r)
		}),
		Task: func(protocol.Claim) (*taskset.Task, error) {
			return &taskset.Task{ID: "t1", Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"6*7?"}`)}, Answer: json.RawMessage(`"42"`)}, nil
		},
		World: func(context.Context, protocol.Claim, *taskset.Task) (episode.World, error) { return f.world, nil },
		Verifier: judgeFunc(func(_ context.Context, c verifier.Case) (verifier.Verdict, error) {
			return verifier.Verdict{Reward: 0.5, Exact: c.Response == "42"}, nil
		}),
		Clock:  func() int64 { return time.Since(began).Nanoseconds() },
		Record: func(r episode.Record) { f.records = append(f.records, r) },
	}
	return f
}

func (f *fixture) run(t *testing.T, ctx context.Context) {
	t.Helper()
	players, err := New(f.opt)
	if err != nil {
		t.Fatal(err)
	}
	players.Run(ctx)
	if len(f.records) != 1 || f.world.closed != 1 {
		t.Fatalf("%d records, and the world was closed %d times; want one of each", len(f.records), f.world.closed)
	}
}

func refuseWith(w http.ResponseWriter, code protocol.Code) {
	protocol.WriteCompletionError(w, protocol.Refuse(code, "not now"))
}

// A rollout is played, judged, finished and noted down, whatever time the gateway takes to answer.
func TestPlayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := []protocol.Code{protocol.CodeUnavailable, protocol.CodeBusy, protocol.CodeDiskFull}
		f := newFixture(t, nil)
		f.opt.Gateway = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(protocol.RolloutHeader) != "g1-s0-a1" || r.URL.Path != "/v1/chat/completions" {
				t.Errorf("%s is asked for %q", r.URL.Path, r.Header.Get(protocol.RolloutHeader))
			}
			if len(refusals) > 0 {
				refuseWith(w, refusals[0])
				refusals = refusals[1:]
				return
			}
			_, _ = io.WriteString(w, said("42"))
		})
		began := time.Now()
		f.run(t, t.Context())
		if waited := time.Since(began); waited != 13*time.Second {
			t.Errorf("it waited %v for the gateway, which asked for 2, 1 and 10 s", waited)
		}
		want := protocol.FinishRequest{Worker: "players", Reward: new(float32(0.5)), Exact: true, PromptText: "6*7?", ResponseText: "42", AnswerText: `"42"`}
		if got := f.plane.finished; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("finished with %+v, want %+v", got, want)
		}
		r := f.records[0]
		if r.Rollout != "g1-s0-a1" || r.Task != "t1" || r.Reward == nil || *r.Reward != 0.5 || r.Turns != 1 || *r.StateLow != 3 || *r.StateHigh != 5 || len(r.Spans) == 0 || !slices.Equal(r.Tokens, []episode.TurnTokens{{Input: 30, Output: 4}}) {
			t.Errorf("recorded %+v", r)
		}
	})
}

// The world of a claim that nobody wants any more is closed at once, and nothing is finished.
func TestUnwanted(t *testing.T) {
	for name, gateway := range map[string]http.HandlerFunc{
		"the gateway knows":   func(w http.ResponseWriter, _ *http.Request) { refuseWith(w, protocol.CodeExpired) },
		"a touch is answered": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, gateway)
				f.plane.wanted = func() bool { return len(f.plane.touched) < 3 }
				f.run(t, t.Context())
				if len(f.plane.finished) != 0 || f.records[0].Failure != episode.Unwanted || f.records[0].Reward != nil {
					t.Errorf("finished %v, recorded %+v", f.plane.finished, f.records[0])
				}
			})
		})
	}
}

// A verdict is told again while the control plane cannot take it.
func TestFinishIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, said("42")) })
		codes := []protocol.Code{protocol.CodeBusy, protocol.CodeUnavailable, protocol.CodeDiskFull}
		f.plane.refuse = func(protocol.FinishRequest) error {
			if len(codes) == 0 {
				return nil
			}
			code := codes[0]
			codes = codes[1:]
			return protocol.Refuse(code, "for a moment")
		}
		f.run(t, t.Context())
		if len(f.plane.finished) != 1 || f.records[0].Reward == nil || len(codes) > 0 {
			t.Errorf("finished %+v, recorded %+v", f.plane.finished, f.records[0])
		}
	})
}

// A task whose choice cannot be written down for a moment is asked for again: nothing is wrong with it.
func TestTaskIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, said("42")) })
		full, task := 90, f.opt.Task
		f.opt.Task = func(claim protocol.Claim) (*taskset.Task, error) {
			if full--; full >= 0 {
				return nil, fmt.Errorf("%w: no space left", taskset.ErrUnwritten)
			}
			return task(claim)
		}
		f.run(t, t.Context())
		if len(f.plane.finished) != 1 || f.plane.finished[0].Failed != "" || f.records[0].Reward == nil || len(f.plane.touched) < 4 {
			t.Errorf("finished %+v, recorded %+v, touched %d times", f.plane.finished, f.records[0], len(f.plane.touched))
		}
	})
}

// The loss of an engine is a failure of the policy's side, and not a rollout that nobody wants.
func TestEngineIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := protocol.Refuse(protocol.CodeExpired, "its engine failed").With("outcome", "engine failed")
		f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) { protocol.WriteCompletionError(w, lost) })
		f.plane.refuse = func(protocol.FinishRequest) error { return lost }
		f.run(t, t.Context())
		if r := f.records[0]; r.Failure != episode.PolicyFailed || r.Reward != nil {
			t.Errorf("recorded %+v", r)
		}
	})
}

// A claim is kept while a tool is at work.
func TestClaimIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, said("x")) })
		f.world.act = func(context.Context, episode.Message) (episode.Answer, error) {
			time.Sleep(130 * time.Second) // in the fake time of the test
			return episode.Answer{Done: true}, nil
		}
		f.run(t, t.Context())
		if len(f.plane.touched) != 6 || len(f.plane.finished) != 1 {
			t.Errorf("touched %d times in 130 s by a claim of 60 s, and finished %d times", len(f.plane.touched), len(f.plane.finished))
		}
		if i := slices.IndexFunc(f.records[0].Spans, func(s episode.Span) bool { return s.Kind == episode.Tool }); i < 0 || f.records[0].Spans[i].EndNS-f.records[0].Spans[i].StartNS != 130e9 {
			t.Errorf("the spans are %+v", f.records[0].Spans)
		}
	})
}

// No failure is a reward, and each says of which class it is.
func TestFailures(t *testing.T) {
	answers := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, said("x")) }
	for _, c := range []struct {
		name, reason string
		class        sandbox.Class
		gateway      http.HandlerFunc
		set          func(*fixture)
	}{
		{"the verifier crashes", "environment", sandbox.VerifierCrash, answers, func(f *fixture) {
			f.opt.Verifier = judgeFunc(func(context.Context, verifier.Case) (verifier.Verdict, error) {
				return verifier.Verdict{}, sandbox.Fail(sandbox.VerifierCrash, "verify", "", "exit 3")
			})
		}},
		{"the verifier is late", "timeout", sandbox.VerifierTimeout, answers, func(f *fixture) {
			f.opt.Verifier = judgeFunc(func(context.Context, verifier.Case) (verifier.Verdict, error) {
				return verifier.Verdict{}, sandbox.Fail(sandbox.VerifierTimeout, "verify", "", "60 s")
			})
		}},
		{"the world is lost", "environment", sandbox.Lost, answers, func(f *fixture) {
			f.world.act = func(context.Context, episode.Message) (episode.Answer, error) {
				return episode.Answer{}, sandbox.Fail(sandbox.Lost, "run", "b", "gone")
			}
		}},
		{"the world does not end", "timeout", sandbox.Timeout, answers, func(f *fixture) {
			f.world.act = func(ctx context.Context, _ episode.Message) (episode.Answer, error) {
				<-ctx.Done()
				return episode.Answer{}, ctx.Err()
			}
		}},
		{"a limit is a failure", "environment", sandbox.OutOfMemory, answers, func(f *fixture) {
			f.opt.FailOn = map[sandbox.Class]bool{sandbox.OutOfMemory: true}
			f.world.act = func(context.Context, episode.Message) (episode.Answer, error) {
				return episode.Answer{Done: true, Limit: sandbox.OutOfMemory}, nil
			}
		}},
		{"the gateway refuses the chat", "environment", sandbox.Refused, func(w http.ResponseWriter, _ *http.Request) { refuseWith(w, protocol.CodeInvalid) }, nil},
		{"the gateway is broken", "environment", episode.PolicyFailed, func(w http.ResponseWriter, _ *http.Request) { refuseWith(w, protocol.CodeInternal) }, nil},
		{"a response is recorded and cannot be read", "environment", episode.PolicyFailed, func(w http.ResponseWriter, _ *http.Request) {
			protocol.WriteCompletionError(w, protocol.Refuse(protocol.CodeConflict, "its text cannot be read").With("recorded", 1))
		}, nil},
		{"the gateway speaks no JSON", "environment", sandbox.Protocol, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, nil},
		{"the prompt is too long", "data", sandbox.BadTask, func(w http.ResponseWriter, _ *http.Request) { refuseWith(w, protocol.CodeContextExceeded) }, nil},
		{"a reward is refused", "environment", sandbox.Protocol, answers, func(f *fixture) {
			f.plane.refuse = func(req protocol.FinishRequest) error {
				if req.Failed == "" {
					return protocol.Refuse(protocol.CodeInvalid, "nothing was sampled")
				}
				return nil
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, c.gateway)
				if c.set != nil {
					c.set(f)
				}
				f.run(t, t.Context())
				r := f.records[0]
				if r.Failure != c.class || r.Reward != nil || r.Note == "" {
					t.Errorf("recorded %+v, want a failure of class %s", r, c.class)
				}
				if got := f.plane.finished; len(got) != 1 || got[0].Reason != c.reason || !strings.HasPrefix(got[0].Failed, string(c.class)) {
					t.Errorf("finished with %+v, want reason %s of class %s", got, c.reason, c.class)
				}
			})
		})
	}
}

// A limit that the document does not call a failure is judged as it is.
func TestLimitIsScored(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, said("x")) })
	f.world.act = func(context.Context, episode.Message) (episode.Answer, error) {
		return episode.Answer{Done: true, Limit: sandbox.Disk}, nil
	}
	f.opt.FailOn = map[sandbox.Class]bool{sandbox.OutOfMemory: true}
	f.run(t, t.Context())
	if r := f.records[0]; r.Reward == nil || r.Limits["disk"] != 1 || len(f.plane.finished) != 1 || f.plane.finished[0].Failed != "" {
		t.Errorf("recorded %+v, finished %+v", r, f.plane.finished)
	}
}

// A process that stops ends no attempt: it writes nothing down and finishes nothing. The world is closed all the same.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFixture(t, func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		players, err := New(f.opt)
		if err != nil {
			t.Fatal(err)
		}
		players.Run(ctx)
		if len(f.records)+len(f.plane.finished) != 0 || f.world.closed != 1 {
			t.Errorf("recorded %+v, finished %+v, and the world was closed %d times", f.records, f.plane.finished, f.world.closed)
		}
	})
}

// A control plane that stops is asked for no more; another refusal of claims is waited out.
func TestClaimsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, said("x")) })
		errs := []error{errors.New("odd"), protocol.Refuse(protocol.CodeUnavailable, "stopping")}
		players, err := New(f.opt)
		if err != nil {
			t.Fatal(err)
		}
		players.opt.Rollouts = refusing{f.plane, &errs}
		began := time.Now()
		players.Run(t.Context())
		if time.Since(began) != claimPause || len(errs) != 0 {
			t.Errorf("it took %v, and %d refusals are left", time.Since(began), len(errs))
		}
	})
}

type refusing struct {
	*plane
	errs *[]error
}

func (r refusing) Claim(context.Context, protocol.ClaimRequest) (protocol.Claims, error) {
	err := (*r.errs)[0]
	*r.errs = (*r.errs)[1:]
	return protocol.Claims{}, err
}

func TestOptionsAreChecked(t *testing.T) {
	good := newFixture(t, nil).opt
	for name, spoil := range map[string]func(*Options){
		"no rollouts": func(o *Options) { o.Rollouts = nil }, "no clock": func(o *Options) { o.Clock = nil }, "no worker": func(o *Options) { o.Workers = 0 },
		"no turn": func(o *Options) { o.TurnsMax = 0 }, "no time": func(o *Options) { o.Timeout = 0 }, "no name": func(o *Options) { o.Name = "" },
	} {
		o := good
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A rollout that an earlier process played is played again, up to where its world answers otherwise. Then it is given up, and
// nothing of it is judged.
func TestPlayedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		earlier  []string
		forsaken string
		fails    error // of the world
		refuses  bool  // the gateway does
	}{
		"the world fails":     {earlier: []string{`{"task":"t1"}`, `{"heard":[{"role":"tool"}]}`}, forsaken: "in turn 1 of 2: no server", fails: errors.New("no server")},
		"another prompt":      {earlier: []string{`{"task":"t1"}`}, forsaken: "it asks otherwise", refuses: true},
		"nothing before":      {},
		"as before":           {earlier: []string{`{"task":"t1"}`, `{"heard":[{"role":"tool","content":"12 files in 0.25s"}]}`}},
		"another answer":      {earlier: []string{`{"task":"t1"}`, `{"heard":[{"role":"tool","content":"13 files in 0.25s"}]}`}, forsaken: "in turn 1 of 2: an answer has changed"},
		"another task":        {earlier: []string{`{"task":"t2"}`}, forsaken: "it was played at task t2"},
		"damaged":             {earlier: []string{`{"task":`}, forsaken: "its notes cannot be read"},
		"a chat that is over": {earlier: []string{`{"task":"t1"}`, `{"heard":[{"role":"tool","content":"12 files in 3 s"}]}`, `{"heard":[{"role":"tool"}]}`, `{}`}, forsaken: "in turn 2 of 4: an answer has changed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := 0
				f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) {
					if test.refuses {
						protocol.WriteCompletionError(w, protocol.Refuse(protocol.CodeExpired, "it asks otherwise").With("outcome", "not kept"))
						return
					}
					_, _ = io.WriteString(w, said("42"))
				})
				f.plane.earlier = test.earlier
				f.world.act = func(context.Context, episode.Message) (episode.Answer, error) {
					if test.fails != nil {
						return episode.Answer{}, test.fails
					}
					if turns++; turns == 2 {
						return episode.Answer{Done: true}, nil
					}
					return episode.Answer{Messages: []json.RawMessage{json.RawMessage(`{"role":"tool","content":"12 files in 1.5s"}`)}}, nil
				}
				f.run(t, t.Context())
				if test.forsaken != "" {
					if len(f.plane.forsaken) != 1 || !strings.Contains(f.plane.forsaken[0], test.forsaken) || len(f.plane.finished) != 0 || f.records[0].Failure != episode.Unwanted {
						t.Errorf("given up %q, finished %+v, recorded %+v", f.plane.forsaken, f.plane.finished, f.records[0])
					}
					return
				}
				heard, noted := "1.5s", []string{`{"task":"t1"}`, `{"heard":[{"role":"tool","content":"12 files in 1.5s"}]}`, `{}`}
				if len(test.earlier) > 0 {
					heard = "0.25s"
				}
				if last := f.asked[len(f.asked)-1]; len(f.asked) != 2 || !strings.Contains(last, heard) {
					t.Errorf("asked %q, want the last with %s", f.asked, heard)
				}
				if got := append(slices.Clone(test.earlier), f.plane.noted...); len(f.plane.forsaken)+len(got)-len(noted) != 0 || got[2] != noted[2] || f.plane.finished[0].Reward == nil {
					t.Errorf("given up %q, noted %q, finished %+v", f.plane.forsaken, got, f.plane.finished)
				}
			})
		})
	}
}
