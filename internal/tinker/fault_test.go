package tinker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/internal/tinker/tinkertest"
)

// wants fails a test unless an error wraps all of some and says some words.
func wants(t *testing.T, err error, words string, wraps ...error) {
	t.Helper()
	for _, wrapped := range wraps {
		if !errors.Is(err, wrapped) {
			t.Errorf("error %v does not wrap %q", err, wrapped)
		}
	}
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v does not say %q", err, words)
	}
}

// changing are the operations after whose failure a model is not known.
var changing = map[string]func(context.Context, *Model) error{
	"forward_backward": func(ctx context.Context, m *Model) error {
		_, err := m.ForwardBackward(ctx, someData(2), sampled)
		return err
	},
	"optim_step": func(ctx context.Context, m *Model) error {
		_, err := m.OptimStep(ctx, Adam{LearningRate: 0.1})
		return err
	},
}

// probed is a model of a session that has found out what the service reads.
func probed(t *testing.T, s *Session) *Model {
	t.Helper()
	m := newModel(t, s)
	must[Output](t)(m.Forward(t.Context(), someData(1), sampled))
	return m
}

// isBroken fails a test unless all operations of a model wrap ErrBroken and say which one has failed.
func isBroken(t *testing.T, m *Model, operation string) {
	t.Helper()
	_, err := m.Forward(t.Context(), someData(1), sampled)
	wants(t, err, operation, ErrBroken)
	_, err = m.OptimStep(t.Context(), Adam{})
	wants(t, err, operation, ErrBroken)
	_, err = m.SaveState(t.Context(), "later")
	wants(t, err, operation, ErrBroken)
}

// An answer that is lost doubles nothing. Where the service executes a number once the request is sent again;
// anywhere else it is not, and the model says so.
func TestALostAnswerDoublesNothing(t *testing.T) {
	four := map[string]tinkertest.Options{"protobuf by arrival": {Order: tinkertest.ByArrival}}
	for name, o := range kinds {
		four[name] = o
	}
	for operation, do := range changing {
		for fault, taken := range map[tinkertest.Fault]bool{
			{Operation: operation, LoseAnswer: true}:                        true,
			{Operation: operation, LoseRequest: true}:                       false,
			{Operation: operation, Status: http.StatusInternalServerError}:  false,
			{Operation: operation, Status: http.StatusBadGateway, Times: 1}: false,
			{Operation: operation, Status: http.StatusServiceUnavailable}:   false,
		} {
			for name, o := range four {
				t.Run(name, func(t *testing.T) {
					inBubble(t, o, func(t *testing.T, service *tinkertest.Service, s *Session) {
						lost(t, service, s, operation, do, fault, o.Order == tinkertest.BySequence || o.Order == tinkertest.Strict && !taken, taken)
					})
				})
			}
		}
	}
}

// A proof that fails proves nothing, and is tried again when it next matters.
func TestAProofThatFailsProvesNothing(t *testing.T) {
	inBubble(t, tinkertest.Options{Order: tinkertest.ByArrival}, func(t *testing.T, service *tinkertest.Service, s *Session) {
		for try := 1; try <= 2; try++ {
			m := probed(t, s)
			service.Fail(tinkertest.Fault{Operation: "optim_step", LoseAnswer: true})
			service.Fail(tinkertest.Fault{Operation: "forward_backward", Skip: 1, Fails: "out of memory"})
			_, err := m.OptimStep(t.Context(), Adam{LearningRate: 0.1})
			wants(t, err, "not known", ErrBroken)
			if n := service.Requests("create_model"); s.numbers != untried || n != 2*try {
				t.Errorf("try %d: knowledge %d after %d models, want none after %d", try, s.numbers, n, 2*try)
			}
		}
		if n := service.Requests("optim_step"); n != 2 {
			t.Errorf("%d steps were sent, want one a model", n)
		}
	})
}

// A request that is sent again and refused may have been taken the first time.
func TestARefusedRepetitionBreaksTheModel(t *testing.T) {
	inBubble(t, tinkertest.Options{}, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := probed(t, s)
		service.Fail(tinkertest.Fault{Operation: "optim_step", LoseAnswer: true})
		service.Fail(tinkertest.Fault{Operation: "optim_step", Status: http.StatusConflict})
		_, err := m.OptimStep(t.Context(), Adam{LearningRate: 0.1})
		wants(t, err, "optim_step", ErrBroken, ErrRefused)
		isBroken(t, m, "optim_step")
	})
}

// lost has a fault happen to an operation that then succeeds or not, and was taken or not.
func lost(t *testing.T, service *tinkertest.Service, s *Session, operation string, do func(context.Context, *Model) error, fault tinkertest.Fault, succeeds, taken bool) {
	m := probed(t, s)
	service.Fail(fault)
	err := do(t.Context(), m)
	var seqs []int
	for _, e := range service.Executed() {
		if e.Model == m.ID() {
			seqs = append(seqs, e.Seq)
		}
		if e.Model != m.ID() && e.Operation != "forward" {
			t.Errorf("the proof has executed %+v", e)
		}
	}
	if want := []int{1, 2}; (succeeds || taken) && !slices.Equal(seqs, want) || !succeeds && !taken && !slices.Equal(seqs, want[:1]) {
		t.Errorf("of the model, numbers %v were executed", seqs)
	}
	if !succeeds {
		wants(t, err, operation, ErrBroken)
		isBroken(t, m, operation)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	// What is known by now is not tried again.
	made := service.Requests("create_model")
	service.Fail(fault)
	if err := do(t.Context(), m); err != nil {
		t.Error(err)
	}
	if n := service.Requests("create_model"); n != made || n != 2 || service.Requests("unload_model") != 1 {
		t.Errorf("%d models were made and %d unloaded, want 2 and 1", n, service.Requests("unload_model"))
	}
}

// What was surely not taken is sent again under its number, for as long as patience lasts.
func TestWhatWasNotTakenIsSentAgain(t *testing.T) {
	for operation, do := range changing {
		for _, status := range []int{http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusTooEarly} {
			onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
				m := probed(t, s)
				service.Fail(tinkertest.Fault{Operation: operation, Status: status, Times: 3})
				if err := do(t.Context(), m); err != nil {
					t.Fatal(err)
				}
				if got, want := service.Operations(), []string{"forward", operation}; !slices.Equal(got, want) {
					t.Errorf("executed were %q, want %q", got, want)
				}
				if e := service.Executed(); e[1].Seq != 2 {
					t.Errorf("%s had number %d, want 2", operation, e[1].Seq)
				}
				service.Fail(tinkertest.Fault{Operation: operation, Status: status, Times: 1 << 20})
				began := time.Now()
				wants(t, do(t.Context(), m), "", ErrDown)
				if took := time.Since(began); took < time.Minute || took > 90*time.Second {
					t.Errorf("down after %s, want a patience of 1m0s", took)
				}
				if _, err := m.SaveState(t.Context(), "after"); err != nil {
					t.Errorf("nothing was taken, and the model is not to be used: %v", err)
				}
			})
		}
	}
}

// Without a connection nothing was sent, and what was not sent is sent again anywhere.
func TestWhatWasNotSentIsSentAgain(t *testing.T) {
	for name, o := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := tinkertest.New(o)
				defer service.Close()
				var refusals atomic.Int32
				s := must[*Session](t)(Open(t.Context(), Options{URL: service.URL(), Patience: time.Minute, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					if refusals.Add(-1) >= 0 {
						return nil, errors.New("nobody is there")
					}
					return service.Dial(ctx, network, address)
				}}))
				defer func() { _ = s.Close() }()
				m := probed(t, s)
				for operation, do := range changing {
					refusals.Store(3)
					if err := do(t.Context(), m); err != nil || refusals.Load() > 0 {
						t.Errorf("%s, of three refused connections %d to come: %v", operation, refusals.Load(), err)
					}
				}
				if n := len(service.Operations()); n != 3 {
					t.Errorf("%d operations were executed, want 3", n)
				}
			})
		})
	}
}

// A part that fails leaves a gradient of which nobody knows what is in it.
func TestAFailedPartBreaksTheModel(t *testing.T) {
	for name, fault := range map[string]tinkertest.Fault{
		"its computation": {Skip: 1, Fails: "out of memory"},
		"its submission":  {Skip: 1, Status: http.StatusBadRequest},
		"the first's":     {Fails: "out of memory"},
		"its future":      {Skip: 2, LoseFuture: true},
	} {
		fault.Operation = "forward_backward"
		t.Run(name, func(t *testing.T) {
			onEachKind(t, func(o *tinkertest.Options) { o.MostData = 2 }, func(t *testing.T, service *tinkertest.Service, s *Session) {
				m := probed(t, s)
				service.Fail(fault)
				_, err := m.ForwardBackward(t.Context(), someData(7), sampled)
				wants(t, err, "of 4: ", ErrBroken)
				isBroken(t, m, "forward_backward")
				if slices.Contains(service.Operations(), "optim_step") {
					t.Error("a step was taken along a gradient that nobody knows")
				}
			})
		})
	}
}

// A step or a load that fails leaves weights that nobody knows.
func TestAFailedStepOrLoadBreaksTheModel(t *testing.T) {
	onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := probed(t, s)
		service.Fail(tinkertest.Fault{Operation: "optim_step", Fails: "out of memory"})
		_, err := m.OptimStep(t.Context(), Adam{LearningRate: 0.1})
		wants(t, err, "out of memory", ErrBroken)
		isBroken(t, m, "optim_step")
		other := newModel(t, s)
		wants(t, other.LoadState(t.Context(), "tinker://nobody/weights/nothing"), "nothing", ErrBroken)
		isBroken(t, other, "load_weights")
	})
}

// What is refused before it has a number leaves the model, and its number, as they were.
func TestARefusalLeavesTheModel(t *testing.T) {
	onEachKind(t, func(o *tinkertest.Options) { o.MostData = 2 }, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := probed(t, s)
		service.Fail(tinkertest.Fault{Operation: "forward_backward", Status: http.StatusBadRequest})
		_, err := m.ForwardBackward(t.Context(), someData(5), sampled)
		wants(t, err, "a fault of the test's", ErrRefused)
		if errors.Is(err, ErrBroken) {
			t.Errorf("a refusal of the first request breaks the model: %v", err)
		}
		must[string](t)(m.SaveState(t.Context(), "a"))
		_, err = m.SaveState(t.Context(), "a")
		wants(t, err, "already exists", ErrRefused)
		_, err = m.SaveSampler(t.Context(), "no/name")
		wants(t, err, "no/name", ErrRefused)
		service.Fail(tinkertest.Fault{Operation: "save_weights_for_sampler", Fails: "the disk is full"})
		_, err = m.SaveSampler(t.Context(), "b")
		wants(t, err, "the disk is full")
		must[string](t)(m.SaveSampler(t.Context(), "b"))
		must[Output](t)(m.ForwardBackward(t.Context(), someData(5), sampled))
		step(t, m)
		var said *Error
		if !errors.As(err, &said) || said.Operation != "save_weights_for_sampler" || said.Detail == "" {
			t.Errorf("the service's words are %+v", said)
		}
	})
}

// A server without an operation of the API has taken nothing.
func TestAMissingOperation(t *testing.T) {
	onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := probed(t, s)
		service.Fail(tinkertest.Fault{Operation: "save_weights", Status: http.StatusNotFound, Plain: true})
		_, err := m.SaveState(t.Context(), "s")
		wants(t, err, "save_weights", errors.ErrUnsupported)
		step(t, m)
		service.Fail(tinkertest.Fault{Operation: "save_weights", Status: http.StatusNotFound})
		_, err = m.SaveState(t.Context(), "s") // and here the model is what is missing
		wants(t, err, "save_weights", ErrGone, ErrBroken)
	})
}

// A poll that the service refuses fails the operation; a proxy that refuses everything is not borne for ever.
func TestARefusedPoll(t *testing.T) {
	for _, plain := range []bool{false, true} {
		onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
			m := probed(t, s)
			service.Fail(tinkertest.Fault{Operation: "retrieve_future", Status: http.StatusBadRequest, Plain: plain, Times: 100})
			asked := service.Requests("retrieve_future")
			_, err := m.OptimStep(t.Context(), Adam{LearningRate: 0.1})
			wants(t, err, "a fault of the test's", ErrRefused, ErrBroken)
			if n, want := service.Requests("retrieve_future")-asked, map[bool]int{false: 1, true: 4}[plain]; n != want {
				t.Errorf("plain %v: asked %d times, want %d", plain, n, want)
			}
		})
	}
}

// A service that answers polls at once is not asked without pause.
func TestPollsPause(t *testing.T) {
	onEachKind(t, func(o *tinkertest.Options) { o.OperationTime, o.Poll = 10*time.Minute, time.Nanosecond }, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := newModel(t, s)
		asked := service.Requests("retrieve_future")
		step(t, m)
		if n := service.Requests("retrieve_future") - asked; n < 2 || n > 600 {
			t.Errorf("asked %d times in ten minutes", n)
		}
	})
}

// A pass without gradient that fails has changed nothing.
func TestAForwardMayFail(t *testing.T) {
	onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := probed(t, s)
		operation := "forward_backward"
		if s.encoding == asJSON {
			operation = "forward"
		}
		service.Fail(tinkertest.Fault{Operation: operation, Fails: "out of memory"})
		_, err := m.Forward(t.Context(), someData(1), sampled)
		wants(t, err, "out of memory")
		must[Output](t)(m.ForwardBackward(t.Context(), someData(1), sampled))
	})
}

// Polls end without a result in many ways; the operation under way is waited for through all of them.
func TestAResultIsWaitedFor(t *testing.T) {
	for name, fault := range map[string]tinkertest.Fault{
		"it takes long": {},
		"500":           {Status: http.StatusInternalServerError, Times: 3},
		"502":           {Status: http.StatusBadGateway, Times: 3},
		"504":           {Status: http.StatusGatewayTimeout, Times: 20},
		"429":           {Status: http.StatusTooManyRequests, Times: 3},
		"a proxy's 400": {Status: http.StatusBadRequest, Plain: true, Times: 3},
		"408":           {Status: http.StatusRequestTimeout, Times: 20},
		"lost":          {LoseAnswer: true, Times: 3},
		"never":         {LoseRequest: true, Times: 3},
		"late":          {Delay: 5 * time.Minute, Times: 2},
	} {
		fault.Operation = "retrieve_future"
		t.Run(name, func(t *testing.T) {
			onEachKind(t, func(o *tinkertest.Options) { o.OperationTime = 10 * time.Minute }, func(t *testing.T, service *tinkertest.Service, s *Session) {
				m := newModel(t, s)
				if fault.Times > 0 {
					service.Fail(fault)
				}
				must[Output](t)(m.ForwardBackward(t.Context(), someData(2), sampled))
				if got := service.Operations(); !slices.Equal(got, []string{"forward_backward"}) {
					t.Errorf("executed were %q", got)
				}
			})
		})
	}
}

// A sample changes nothing, and is asked for again under its number as often as it takes.
func TestASampleIsAskedForAgain(t *testing.T) {
	for name, fault := range map[string]tinkertest.Fault{
		"its answer is lost":      {Operation: "asample", LoseAnswer: true, Times: 2},
		"its request is lost":     {Operation: "asample", LoseRequest: true, Times: 2},
		"the service has trouble": {Operation: "asample", Status: http.StatusInternalServerError, Times: 2},
		"the service is busy":     {Operation: "asample", Status: http.StatusTooManyRequests, Times: 2},
		"its future is gone":      {Operation: "asample", LoseFuture: true, Times: 2},
		"its result is lost":      {Operation: "retrieve_future", LoseAnswer: true, Times: 2},
	} {
		t.Run(name, func(t *testing.T) {
			onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
				m := newModel(t, s)
				sampler := must[*Sampler](t)(s.NewSampler(t.Context(), must[string](t)(m.SaveSampler(t.Context(), "v"))))
				q := SampleRequest{Prompt: []int32{3}, MaxTokens: 4, Temperature: 1, TopP: 1, Seed: 9}
				want := must[Sequence](t)(sampler.Sample(t.Context(), q))
				service.Fail(fault)
				got := must[Sequence](t)(sampler.Sample(t.Context(), q))
				if !slices.Equal(got.Tokens, want.Tokens) {
					t.Errorf("sampled %v, want %v", got.Tokens, want.Tokens)
				}
				for i, e := range service.Executed()[2:] {
					if e.Operation != "asample" || e.Seq != 2 {
						t.Errorf("then was executed %d: %+v, want samples of number 2", i, e)
					}
				}
			})
		})
	}
}

// A service that has forgotten the session has forgotten all in it: samplers come back by their paths, models do not.
func TestAForgottenSessionIsBegunAnew(t *testing.T) {
	for name, wait := range map[string]time.Duration{"a heartbeat notices": time.Minute, "the next request notices": 0} {
		t.Run(name, func(t *testing.T) {
			onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
				m, first := newModel(t, s), s.ID()
				path := must[string](t)(m.SaveSampler(t.Context(), "v"))
				sampler := must[*Sampler](t)(s.NewSampler(t.Context(), path))
				q := SampleRequest{Prompt: []int32{3}, MaxTokens: 4, Temperature: 1, TopP: 1, Seed: 9}
				want := must[Sequence](t)(sampler.Sample(t.Context(), q))
				service.Forget()
				goesBy(t, wait)
				if got := must[Sequence](t)(sampler.Sample(t.Context(), q)); !slices.Equal(got.Tokens, want.Tokens) {
					t.Errorf("sampled %v, want %v", got.Tokens, want.Tokens)
				}
				if s.ID() == first || service.Requests("create_session") != 2 {
					t.Errorf("session %s after %s, %d begun, want 2", s.ID(), first, service.Requests("create_session"))
				}
				_, err := m.OptimStep(t.Context(), Adam{LearningRate: 1})
				wants(t, err, "session", ErrBroken, ErrGone)
				other := newModel(t, s)
				must[Output](t)(other.ForwardBackward(t.Context(), someData(1), sampled))
				if err := s.Delete(t.Context(), path); err != nil {
					t.Fatal(err)
				}
				_, err = sampler.Sample(t.Context(), q)
				wants(t, err, path, ErrGone)
			})
		})
	}
}

// goesBy lets time go by.
func goesBy(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
	synctest.Wait()
}
