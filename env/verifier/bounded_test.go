package verifier_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/verifier"
)

// verifierFunc is a verifier in Go that needs no context.
type verifierFunc func(verifier.Case) (verifier.Verdict, error)

func (f verifierFunc) Verify(_ context.Context, c verifier.Case) (verifier.Verdict, error) {
	return f(c)
}
func (f verifierFunc) Close() error { return nil }

// contextFunc is one that has it.
type contextFunc func(context.Context) (verifier.Verdict, error)

func (f contextFunc) Verify(ctx context.Context, _ verifier.Case) (verifier.Verdict, error) {
	return f(ctx)
}
func (f contextFunc) Close() error { return nil }

// So many cases are judged at once; the others wait, and their wait is told from their judging.
func TestBoundedConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := verifier.Bound(contextFunc(func(context.Context) (verifier.Verdict, error) {
			time.Sleep(time.Second)
			return verifier.Verdict{Reward: 1}, nil
		}), verifier.Bounds{Concurrency: 2})
		start := time.Now()
		var mu sync.Mutex
		waits := map[time.Duration]int{}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				_, err := j.VerifyTimed(t.Context(), verifier.Case{}, func() {
					mu.Lock()
					defer mu.Unlock()
					waits[time.Since(start)]++
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if s := j.Status(); s.Running != 2 || s.Waiting != 4 {
			t.Errorf("%d are judged and %d wait", s.Running, s.Waiting)
		}
		all.Wait()
		if waits[0] != 2 || waits[time.Second] != 2 || waits[2*time.Second] != 2 {
			t.Errorf("waits %v", waits)
		}
		s := j.Status()
		if s.Verdicts != 6 || s.VerdictTotal != 6*time.Second || s.WaitTotal != 6*time.Second || s.VerdictS != [3]float64{1, 1, 1} || s.WaitS[2] != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// One that is over time is a failure of its own class, whether the verifier heeds its context or not;
// one that does not is still at work, and keeps its slot.
func TestBoundedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := verifier.Bound(contextFunc(func(context.Context) (verifier.Verdict, error) {
			<-release
			return verifier.Verdict{Reward: 1}, nil
		}), verifier.Bounds{Concurrency: 1, Timeout: time.Minute})
		_, err := stuck.Verify(t.Context(), verifier.Case{})
		if sandbox.ClassOf(err) != sandbox.VerifierTimeout || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: the verifier's time is over, not the rollout's", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := stuck.Verify(ctx, verifier.Case{}); !errors.Is(err, context.DeadlineExceeded) || sandbox.ClassOf(err) != "" {
			t.Errorf("%v: the caller's time is over", err)
		}
		if s := stuck.Status(); s.Running != 1 || s.Waiting != 0 || s.Failures[sandbox.VerifierTimeout] != 1 {
			t.Errorf("%+v", s)
		}
		close(release)
		if v, err := stuck.Verify(t.Context(), verifier.Case{}); err != nil || v.Reward != 1 {
			t.Errorf("after it returned: %v, %v", v, err)
		}

		heeds := verifier.Bound(contextFunc(func(ctx context.Context) (verifier.Verdict, error) {
			<-ctx.Done()
			return verifier.Verdict{}, errors.New("was at line 7")
		}), verifier.Bounds{Timeout: time.Minute})
		if _, err := heeds.Verify(t.Context(), verifier.Case{}); sandbox.ClassOf(err) != sandbox.VerifierTimeout || !strings.Contains(err.Error(), "line 7") {
			t.Errorf("%v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := heeds.Verify(ctx, verifier.Case{}); !errors.Is(err, context.Canceled) || sandbox.ClassOf(err) != "" {
			t.Errorf("%v: the caller gave it up", err)
		}
		if s := heeds.Status(); s.GivenUp != 1 || s.Failures[sandbox.VerifierTimeout] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Only what is safe is asked again, and so often.
func TestBoundedRetries(t *testing.T) {
	lost := sandbox.Fail(sandbox.Lost, "run", "", "gone")
	for _, test := range []struct {
		name   string
		err    error
		on     []sandbox.Class
		tries  int
		passed time.Duration
		class  sandbox.Class
	}{
		{"no retries without a mark", lost, nil, 1, 0, sandbox.Lost},
		{"by class", lost, []sandbox.Class{sandbox.Lost}, 3, 300 * time.Millisecond, sandbox.Lost},
		{"marked", verifier.Again(lost, 0), nil, 3, 300 * time.Millisecond, sandbox.Lost},
		{"marked, not before", verifier.Again(lost, 10*time.Second), nil, 3, 20 * time.Second, sandbox.Lost},
		{"without a class", errors.New("what?"), nil, 1, 0, sandbox.VerifierCrash},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				j := verifier.Bound(verifierFunc(func(verifier.Case) (verifier.Verdict, error) {
					tries++
					return verifier.Verdict{Reward: 1}, test.err
				}), verifier.Bounds{Retries: 2, RetryOn: test.on})
				start := time.Now()
				v, err := j.Verify(t.Context(), verifier.Case{})
				if sandbox.ClassOf(err) != test.class || v.Reward != 0 || tries != test.tries || time.Since(start) != test.passed {
					t.Errorf("%d tries in %v: %v, %v", tries, time.Since(start), v, err)
				}
				if s := j.Status(); s.Retries != int64(test.tries-1) || s.Failures[test.class] != 1 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A verifier that panics has crashed, and the run goes on.
func TestBoundedOutlivesPanics(t *testing.T) {
	j := verifier.Bound(verifierFunc(func(verifier.Case) (verifier.Verdict, error) { panic("no idea") }), verifier.Bounds{})
	if _, err := j.Verify(t.Context(), verifier.Case{}); sandbox.ClassOf(err) != sandbox.VerifierCrash || !strings.Contains(err.Error(), "no idea") {
		t.Errorf("%v", err)
	}
}

// Nothing but a finite number within the range is ever a reward.
func FuzzJudgeRange(f *testing.F) {
	for _, x := range []float64{0, 1, -1, 0.5, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.Nextafter(1, 2), math.SmallestNonzeroFloat64} {
		f.Add(x, 0.0, 1.0, x)
		f.Add(0.5, -1.0, 2.0, x)
	}
	f.Fuzz(func(t *testing.T, reward, low, high, step float64) {
		if !(low < high) || math.Abs(low) > 1e30 || math.Abs(high) > 1e30 {
			low, high = 0, 1
		}
		j := verifier.Bound(verifierFunc(func(verifier.Case) (verifier.Verdict, error) {
			return verifier.Verdict{Reward: reward, Steps: []float64{step}, Metrics: map[string]float64{"m": step}}, nil
		}), verifier.Bounds{Range: [2]float64{low, high}})
		v, err := j.Verify(t.Context(), verifier.Case{})
		good := reward >= low && reward <= high && math.Abs(step) <= 1e30
		switch {
		case good != (err == nil):
			t.Errorf("%v in %v to %v, step %v: %v", reward, low, high, step, err)
		case err != nil && (sandbox.ClassOf(err) != sandbox.VerifierProtocol || v.Reward != 0 || v.Steps != nil):
			t.Errorf("%v, %v", v, err)
		case err == nil && math.IsInf(float64(float32(v.Reward)), 0):
			t.Errorf("%v is no float32", v.Reward)
		}
	})
}

// Whatever a server answers, a verdict's reward is a finite number within the range.
func FuzzAnswers(f *testing.F) {
	for _, text := range []string{
		`{"reward":0.5}`, `{"reward":NaN}`, `{"reward":1e999}`, `{"reward":-0}`, `{"steps":[0.5,1e30]}`, `{"reward":1,"reward":7}`,
		`{"reward":null}`, `{"reward":"Infinity"}`, `{"REWARD":1}`, `{"steps":[1e308,1e308,-1e308]}`, `{"reward":1,"metrics":{"a":1e999}}`, `[]`, `{"reward":0x1p3}`,
	} {
		f.Add([]byte(text))
	}
	var answer atomic.Pointer[[]byte]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(*answer.Load()) }))
	f.Cleanup(server.Close)
	j, err := verifier.New(verifier.Options{Kind: verifier.HTTP, URL: server.URL})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { j.Close() })
	f.Fuzz(func(t *testing.T, text []byte) {
		answer.Store(&text)
		checkReward(t, j, caseOf("", `1`))
	})
}

// Whatever the policy answers, comparing it is a verdict.
func FuzzExact(f *testing.F) {
	for _, text := range []string{"", "1/3", `\boxed{{}`, "1e999", "#### ", "-.", "1,000", "\xff"} {
		f.Add(text, text)
	}
	var judges []*verifier.Bounded
	for _, o := range []verifier.Options{{}, {Extract: "last-line", Tolerance: 0.1}, {Extract: "boxed", IgnoreSpace: true}, {Extract: "marker", Marker: "####", IgnoreCase: true}, {Extract: "pattern", Pattern: "(.*)"}} {
		o.Kind = verifier.Exact
		j, err := verifier.New(o)
		if err != nil {
			f.Fatal(err)
		}
		judges = append(judges, j)
	}
	f.Fuzz(func(t *testing.T, response, right string) {
		answer, err := json.Marshal(right)
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range judges {
			v, err := j.Verify(t.Context(), caseOf(response, string(answer)))
			if err != nil || (v.Reward != 0 && v.Reward != 1) || (v.Reward == 1) != v.Exact {
				t.Errorf("%d: %v, %v", i, v, err)
			}
			if i == 0 && response == right && utf8.ValidString(right) && v.Reward != 1 {
				t.Errorf("%q is not itself", right)
			}
		}
	})
}
