package tinker

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/internal/tinker/tinkertest"
)

// openAt opens a session at a service, or fails to.
func openAt(t *testing.T, service *tinkertest.Service, o Options) (*Session, error) {
	t.Helper()
	if o.URL == "" {
		o.URL = service.URL()
	}
	o.Dial = service.Dial
	o.Patience = time.Minute
	s, err := Open(t.Context(), o)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := tinkertest.New(tinkertest.Options{Key: "the key"})
		defer service.Close()
		_, err := openAt(t, service, Options{Key: "another"})
		wants(t, err, "the key is not", ErrRefused)
		_, err = openAt(t, service, Options{URL: "tinker.test"})
		wants(t, err, "http://")
		service.Fail(tinkertest.Fault{Operation: "client/config", Status: http.StatusNotFound})
		_, err = openAt(t, service, Options{Key: "the key"})
		wants(t, err, "client/config", ErrRefused)
		service.Fail(tinkertest.Fault{Operation: "create_session", Status: http.StatusBadGateway, Times: 2})
		s, err := openAt(t, service, Options{Key: "the key", Name: "a run"})
		if err != nil {
			t.Fatal(err)
		}
		if bases := must[[]string](t)(s.Bases(t.Context())); !slices.Equal(bases, []string{"test/base"}) {
			t.Errorf("base models %q", bases)
		}
		_, err = s.NewModel(t.Context(), ModelOptions{Base: "another", Rank: 4})
		wants(t, err, "another", ErrRefused)
		_, err = s.NewModel(t.Context(), ModelOptions{Base: "test/base"})
		wants(t, err, "rank", ErrRefused)
		goesBy(t, 95*time.Second)
		if n := service.Requests("session_heartbeat"); n != 9 {
			t.Errorf("%d heartbeats in 95 s, want 9", n)
		}
	})
}

// A service that cannot be reached is down after patience, whatever is asked of it.
func TestDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		refuses := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody is there") }
		_, err := Open(t.Context(), Options{URL: "http://tinker.test", Dial: refuses, Patience: 30 * time.Second})
		wants(t, err, "nobody is there", ErrDown)
		if took := time.Since(began); took < 30*time.Second || took > time.Minute {
			t.Errorf("down after %s, want a patience of 30s", took)
		}
	})
	onEachKind(t, func(o *tinkertest.Options) { o.OperationTime = time.Hour }, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := newModel(t, s)
		var failed error
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, failed = m.ForwardBackward(t.Context(), someData(1), sampled)
		}()
		goesBy(t, time.Minute)
		service.Fail(tinkertest.Fault{LoseRequest: true, Times: 1 << 20})
		began := time.Now()
		<-done
		wants(t, failed, "forward_backward", ErrDown, ErrBroken)
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("down after %s, want a patience of 1m0s", took)
		}
	})
}

// What the service reads is found out by a question that does nothing, and before any number is used.
func TestTheEncodingIsFoundOut(t *testing.T) {
	both := map[string]tinkertest.Options{
		"protobuf by arrival": {Order: tinkertest.ByArrival},
		"JSON by sequence":    {Encoding: tinkertest.JSON},
		"either":              {Encoding: tinkertest.Either},
	}
	for name, o := range kinds {
		both[name] = o
	}
	for name, o := range both {
		for _, fault := range []tinkertest.Fault{{}, {Operation: "forward_backward", Status: http.StatusServiceUnavailable, Times: 3}, {Operation: "forward_backward", LoseAnswer: true}} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, o, func(t *testing.T, service *tinkertest.Service, s *Session) {
					m := newModel(t, s)
					if fault.Operation != "" {
						service.Fail(fault)
					}
					must[Output](t)(m.ForwardBackward(t.Context(), someData(1), sampled))
					asked := service.Requests("forward_backward")
					must[Output](t)(m.ForwardBackward(t.Context(), someData(1), sampled))
					if n := service.Requests("forward_backward") - asked; n != 1 {
						t.Errorf("the second pass took %d requests, want 1", n)
					}
					executed := service.Executed()
					if len(executed) != 2 || executed[0].Seq != 1 || executed[1].Seq != 2 {
						t.Errorf("executed were %+v, want two passes, numbered 1 and 2", executed)
					}
					if want := map[tinkertest.Encoding]encoding{tinkertest.Protobuf: asProtobuf, tinkertest.JSON: asJSON, tinkertest.Either: asProtobuf}[o.Encoding]; s.encoding != want {
						t.Errorf("found out encoding %d, want %d", s.encoding, want)
					}
				})
			})
		}
	}
}

// An operation is sent once the one before it is taken, and does not wait for its result.
func TestOperationsAreSentSideBySide(t *testing.T) {
	onEachKind(t, func(o *tinkertest.Options) { o.OperationTime, o.MostData = time.Minute, 2 }, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := newModel(t, s)
		began, done := time.Now(), make(chan error)
		go func() {
			_, err := m.ForwardBackward(t.Context(), someData(5), sampled)
			done <- err
		}()
		goesBy(t, time.Second)
		go func() {
			_, err := m.OptimStep(t.Context(), Adam{LearningRate: 0.1})
			done <- err
		}()
		goesBy(t, time.Second)
		want := []string{"forward_backward", "forward_backward", "forward_backward", "optim_step"}
		if got := service.Operations(); !slices.Equal(got, want) {
			t.Errorf("two seconds on, executed were %q, want %q", got, want)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("four operations of a minute took %s", took)
		}
	})
}

// A caller that gives up is let go at once. What it leaves at the service is told to stop, or leaves the model broken.
func TestGivingUp(t *testing.T) {
	onEachKind(t, func(o *tinkertest.Options) { o.OperationTime, o.TokenTime = time.Hour, time.Hour }, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := newModel(t, s)
		service.Fail(tinkertest.Fault{Operation: "retrieve_future", LoseRequest: true}) // one of the save's polls
		path := must[string](t)(m.SaveSampler(t.Context(), "v"))
		sampler := must[*Sampler](t)(s.NewSampler(t.Context(), path))
		gives := func(do func(context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			began := time.Now()
			wants(t, do(ctx), "", context.DeadlineExceeded)
			if took := time.Since(began); took != 30*time.Second {
				t.Errorf("gave up after %s, want 30s", took)
			}
		}
		gives(func(ctx context.Context) error {
			_, err := sampler.Sample(ctx, SampleRequest{Prompt: []int32{1}, MaxTokens: 5, Temperature: 1, TopP: 1})
			return err
		})
		synctest.Wait()
		if asked := service.Requests("cancel_future"); asked != 1 {
			t.Errorf("the service was told %d times to stop, want once", asked)
		}
		gives(func(ctx context.Context) error {
			_, err := m.SaveState(ctx, "s")
			return err
		})
		if err := m.state(); err != nil {
			t.Errorf("a save that nobody waits for breaks the model: %v", err)
		}
		gives(func(ctx context.Context) error {
			_, err := m.ForwardBackward(ctx, someData(2), sampled)
			return err
		})
		isBroken(t, m, "forward_backward")
	})
}

// Who gives up before anything is sent has changed nothing.
func TestGivingUpInTheQueue(t *testing.T) {
	onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := probed(t, s)
		hold := make(chan struct{})
		service.Fail(tinkertest.Fault{Operation: "optim_step", Hold: hold})
		first := make(chan error)
		go func() {
			_, err := m.OptimStep(t.Context(), Adam{LearningRate: 0.1})
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.ForwardBackward(ctx, someData(1), sampled)
		wants(t, err, "", context.DeadlineExceeded)
		close(hold)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		step(t, m)
	})
}

// A service that knows no cancel_future is told once.
func TestADeafServiceIsToldOnce(t *testing.T) {
	inBubble(t, tinkertest.Options{Deaf: true, TokenTime: time.Hour}, func(t *testing.T, service *tinkertest.Service, s *Session) {
		sampler := must[*Sampler](t)(s.NewSampler(t.Context(), must[string](t)(newModel(t, s).SaveSampler(t.Context(), "v"))))
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := sampler.Sample(ctx, SampleRequest{Prompt: []int32{1}, MaxTokens: 5, Temperature: 1, TopP: 1})
			cancel()
			wants(t, err, "", context.DeadlineExceeded)
			synctest.Wait()
		}
		if n := service.Requests("cancel_future"); n != 1 {
			t.Errorf("told %d times, want once", n)
		}
	})
}

func TestUnload(t *testing.T) {
	onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := newModel(t, s)
		path := must[string](t)(m.SaveSampler(t.Context(), "v"))
		service.Fail(tinkertest.Fault{Operation: "unload_model", Status: http.StatusNotFound, Plain: true})
		wants(t, m.Unload(t.Context()), "unload_model", errors.ErrUnsupported)
		step(t, m)
		for range 2 {
			if err := m.Unload(t.Context()); err != nil {
				t.Error(err)
			}
		}
		_, err := m.OptimStep(t.Context(), Adam{})
		wants(t, err, "unloaded", ErrBroken)
		must[*Sampler](t)(s.NewSampler(t.Context(), path))
	})
}

func TestDelete(t *testing.T) {
	inBubble(t, tinkertest.Options{Undeletable: true}, func(t *testing.T, _ *tinkertest.Service, s *Session) {
		path := must[string](t)(newModel(t, s).SaveState(t.Context(), "s"))
		wants(t, s.Delete(t.Context(), path), path, errors.ErrUnsupported)
		wants(t, s.Delete(t.Context(), "somewhere/else"), "tinker://")
	})
	for path, want := range map[string]string{
		"tinker://run/weights/s":         "run weights/s",
		"tinker://run/sampler_weights/v": "run sampler_weights/v",
		"tinker://run/v0":                "run sampler_weights/v0", // SkyRL leaves the kind out
		"tinker://a:b/weights/x y":       "a:b weights/x%20y",
		"tinker://run":                   " ",
		"/a/b":                           " ",
	} {
		run, checkpoint, err := splitPath(path)
		if got := run + " " + checkpoint; got != want || (err != nil) != (want == " ") {
			t.Errorf("%s is %q, %v, want %q", path, got, err, want)
		}
	}
}

// What no service can compute on is refused with the datum's number, and nothing is sent.
func TestDataIsCheckedFirst(t *testing.T) {
	nan, infinite := float32(math.NaN()), float32(math.Inf(-1))
	inBubble(t, tinkertest.Options{}, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m := newModel(t, s)
		for words, spoil := range map[string]func(*Datum, *Loss){
			"no tokens":                     func(d *Datum, _ *Loss) { d.Tokens = nil },
			"3 targets of 4 tokens":         func(d *Datum, _ *Loss) { d.Targets = d.Targets[:3] },
			"token 1 is -5":                 func(d *Datum, _ *Loss) { d.Tokens[1] = -5 },
			"target 2 is -1":                func(d *Datum, _ *Loss) { d.Targets[2] = -1 },
			"2 logprobs of 4 targets":       func(d *Datum, _ *Loss) { d.Logprobs = d.Logprobs[:2] },
			"logprobs 3 is -Inf":            func(d *Datum, _ *Loss) { d.Logprobs[3] = infinite },
			"advantages 0 is NaN":           func(d *Datum, _ *Loss) { d.Advantages[0] = nan },
			"no advantages, which loss ppo": func(d *Datum, l *Loss) { d.Advantages, l.Name = nil, "ppo" },
			"no weights, which loss cross":  func(_ *Datum, l *Loss) { l.Name = "cross_entropy" },
			"1 weights of 4 targets":        func(d *Datum, _ *Loss) { d.Weights = []float32{1} },
		} {
			data, loss := someData(4), Loss{Name: "importance_sampling"}
			for i := range 2 { // so that the third alone can lack what cross_entropy reads
				data[i].Weights = make([]float32, len(data[i].Targets))
			}
			spoil(&data[2], &loss)
			_, err := m.ForwardBackward(t.Context(), data, loss)
			wants(t, err, "datum 2 of 4: "+words, ErrRefused)
		}
		_, err := m.ForwardBackward(t.Context(), nil, sampled)
		wants(t, err, "no data", ErrRefused)
		_, err = m.ForwardBackward(t.Context(), someData(1), Loss{})
		wants(t, err, "no name", ErrRefused)
		_, err = m.ForwardBackward(t.Context(), someData(1), Loss{"ppo", map[string]float64{"clip_low_threshold": math.NaN()}})
		wants(t, err, "clip_low_threshold", ErrRefused)
		_, err = m.OptimStep(t.Context(), Adam{LearningRate: -1})
		wants(t, err, "at least 0", ErrRefused)
		_, err = m.SaveState(t.Context(), "")
		wants(t, err, "name", ErrRefused)
		if n := service.Requests("forward_backward") + service.Requests("optim_step"); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
		step(t, m)
	})
}

func TestSampleRequestsAreChecked(t *testing.T) {
	fine := SampleRequest{Prompt: []int32{1}, MaxTokens: 1, Temperature: 1, TopP: 1}
	if err := fine.check(); err != nil {
		t.Error(err)
	}
	for words, spoil := range map[string]func(*SampleRequest){
		"no prompt":      func(q *SampleRequest) { q.Prompt = nil },
		"prompt is -1":   func(q *SampleRequest) { q.Prompt = []int32{-1} },
		"at least 1":     func(q *SampleRequest) { q.MaxTokens = 0 },
		"temperature -1": func(q *SampleRequest) { q.Temperature = -1 },
		"top p 0":        func(q *SampleRequest) { q.TopP = 0 },
		"top k -1":       func(q *SampleRequest) { q.TopK = -1 },
		"one of the two": func(q *SampleRequest) { q.Stop, q.StopTexts = []int32{1}, []string{"x"} },
	} {
		q := fine
		spoil(&q)
		wants(t, q.check(), words)
	}
}

func TestDivision(t *testing.T) {
	for _, c := range []struct {
		limits limits
		want   []int
	}{
		{limits{1024, 5_000_000}, []int{7}},
		{limits{3, 5_000_000}, []int{3, 3, 1}},
		{limits{1, 5_000_000}, []int{1, 1, 1, 1, 1, 1, 1}},
		{limits{1024, 1}, []int{1, 1, 1, 1, 1, 1, 1}}, // each alone is too large
		{limits{1024, 40 + 60 + 80}, []int{3, 1, 1, 1, 1}},
	} {
		var got []int
		var all []Datum
		for _, chunk := range c.limits.divide(someData(7)) {
			got, all = append(got, len(chunk)), append(all, chunk...)
		}
		if !slices.Equal(got, c.want) || !slices.EqualFunc(all, someData(7), func(a, b Datum) bool { return slices.Equal(a.Tokens, b.Tokens) }) {
			t.Errorf("%+v divides seven data of 40, 60, 80 … bytes into %v, want %v", c.limits, got, c.want)
		}
	}
}

// Metrics of parts are put together as their names say.
func TestMetricsAreCombined(t *testing.T) {
	of := func(data int, v float64) Output {
		o := Output{Logprobs: make([][]float32, data), Metrics: map[string]float64{}}
		for _, how := range strings.Fields("loss:sum loss:mean loss:min loss:max loss:hash plain") {
			o.Metrics[how] = v
		}
		return o
	}
	odd := Output{Logprobs: make([][]float32, 1), Metrics: map[string]float64{"once:mean": 4}}
	got := combine([]Output{of(1, 8), of(3, 2), odd, of(4, 5)})
	want := map[string]float64{"loss:sum": 15, "loss:mean": (8 + 6 + 20) / 8.0, "loss:min": 2, "loss:max": 8, "loss:hash": 5, "plain": 5, "once:mean": 4}
	for name, v := range want {
		if math.Abs(got.Metrics[name]-v) > 1e-12 {
			t.Errorf("%s is %v, want %v", name, got.Metrics[name], v)
		}
	}
	if len(got.Metrics) != len(want) || len(got.Logprobs) != 9 {
		t.Errorf("%d metrics and %d outputs, want %d and 9", len(got.Metrics), len(got.Logprobs), len(want))
	}
}

// A service gives the place of a model that was unloaded to the next one, perhaps with the gradient that the first had
// gathered: a new model has none of another's, and steps as one does that was the first.
func TestAModelBeginsWithoutAGradientOfAnother(t *testing.T) {
	onEachKind(t, nil, func(t *testing.T, _ *tinkertest.Service, s *Session) {
		data := someData(3)
		stepped := func() Output {
			if err := s.ClearPlace(t.Context(), ModelOptions{Base: "test/base", Rank: 4}); err != nil {
				t.Fatal(err)
			}
			m := newModel(t, s)
			must[Output](t)(m.ForwardBackward(t.Context(), data, sampled))
			step(t, m)
			return must[Output](t)(m.Forward(t.Context(), data, sampled))
		}
		first := stepped()
		given := newModel(t, s) // whose place is the next model's
		must[Output](t)(given.ForwardBackward(t.Context(), someData(7)[4:], sampled))
		if err := given.Unload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := farthest(stepped().Logprobs, first.Logprobs); d != 0 {
			t.Errorf("behind a model that was unloaded with a gradient, a step comes out %v off that of the first model", d)
		}
	})
}

// A redirection is not followed, since the key would go along, and is said.
func TestARedirectionIsNotFollowed(t *testing.T) {
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer elsewhere.Close()
	front := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusPermanentRedirect))
	defer front.Close()
	_, err := Open(t.Context(), Options{URL: front.URL, Key: "secret"})
	wants(t, err, elsewhere.URL, ErrRefused)
	if asked != 0 {
		t.Errorf("%d requests went elsewhere", asked)
	}
}
