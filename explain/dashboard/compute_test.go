package dashboard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// hardest are schedules that took from many seconds to no end, while their events had no bound.
var hardest = []string{
	"batch=16384&group=16&concurrency=256&gpus=64&rollout-gpus=63&queue-factor=16&pieces=64&tail-multiplier=2",
	"batch=16384&group=1&concurrency=1&gpus=2&rollout-gpus=1&queue-factor=16&ahead=8",
	"batch=1&group=1&concurrency=256&gpus=16&rollout-gpus=15&train-time=1e6&rollout-time=1e-6&sync-time=100000&queue-factor=16",
}

// Whatever is asked for within the bounds ends after so many events, and says what it left out.
func TestSchedulesAreBounded(t *testing.T) {
	m := newTestModel(1000)
	m.computing.eventsMax /= 64 // the same bound, in less time
	data, left := m.Data(), 0
	for _, query := range hardest {
		var s Schedules
		if code := get(t, data, "/api/v1/view/schedules?"+query, &s); code != 200 || len(s.Schedules) != len(topologies) {
			t.Fatalf("%s: %d, %d schedules", query, code, len(s.Schedules))
		}
		for _, one := range s.Schedules {
			short := strings.HasPrefix(strings.Join(one.Notes, " "), "Too long to show")
			if short {
				left++
			}
			if short != (one.PeriodS == 0) || short != (len(one.Bars) == 0) {
				t.Errorf("%s: %s has a period of %g, %d bars and the notes %q", query, one.Topology, one.PeriodS, len(one.Bars), one.Notes)
			}
		}
	}
	if left == 0 {
		t.Error("none was left out: these are not the hardest")
	}
	if code := get(t, data, "/api/v1/view/schedules?batch=32768", nil); code != 400 {
		t.Errorf("a batch beyond the bounds: %d", code)
	}
}

// Those who leave end what they asked for.
func TestSchedulesEndWithWhoAsked(t *testing.T) {
	m := newTestModel(1000)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w := httptest.NewRecorder()
	m.Data().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/view/schedules?"+hardest[0], nil))
	if w.Code != 503 {
		t.Errorf("%d %.100s", w.Code, w.Body)
	}
	if _, err := m.Schedules(ctx, nil, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("the simulation went on: %v", err)
	}
}

// One answer is computed at a time; so many wait, and more are refused.
func TestComputeQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newComputeQueue()
		ctx, leave := context.WithCancel(t.Context())
		release := make(chan struct{})
		results := make(chan error, computeQueueMax)
		busy, most := 0, 0
		for range computeQueueMax {
			go func() {
				_, err := w.do(ctx, func() (any, error) {
					busy++ // one at a time: no lock
					most = max(most, busy)
					<-release
					busy--
					return nil, nil
				})
				results <- err
			}()
		}
		synctest.Wait()
		_, err := w.do(t.Context(), func() (any, error) { t.Error("computed"); return nil, nil })
		if r, ok := errors.AsType[*refusal](err); !ok || r.status != http.StatusTooManyRequests {
			t.Errorf("one more: %v", err)
		}
		release <- struct{}{} // the first is done, the second begins
		synctest.Wait()
		leave() // those that wait leave
		close(release)
		done, left := 0, 0
		for range computeQueueMax {
			if err := <-results; err == nil {
				done++
			} else if errors.Is(err, context.Canceled) {
				left++
			}
		}
		if most != 1 || done != 2 || left != computeQueueMax-2 {
			t.Errorf("%d at once, %d done, %d left", most, done, left)
		}
		if len(w.turn) != 0 || len(w.waiting) != 0 {
			t.Error("places are held for ever")
		}
	})
}

// A setting at any corner of its bounds has a frontier or is refused.
func TestFrontierAtItsBounds(t *testing.T) {
	own := theory.Input{GroupSize: 4, ConcurrencyRollouts: 16, BatchRollouts: 16, Utilization: 1, TailMultiplier: 2, StepS: 1}
	m := New(Options{Rules: rules(), Setting: func(metrics.Summary) (Setting, bool) { return Setting{Input: own}, true }})
	values := map[string]float64{}
	check := func(name string) {
		f, err := m.Frontier(maps.Clone(values), nil)
		if _, refused := errors.AsType[*refusal](err); err != nil && !refused {
			t.Errorf("%s: %v", name, err)
		}
		for _, p := range f.Curve {
			if v := p.StalenessMean + p.PeriodRatio; math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%s: a point %+v", name, p)
				return
			}
		}
	}
	for _, n := range settingNumbers {
		for _, v := range []float64{n.least, n.most} {
			values = map[string]float64{n.name: v}
			check(fmt.Sprintf("%s=%g", n.name, v))
		}
	}
	for corner := range 1 << 6 {
		values = map[string]float64{}
		for bit, name := range []string{"group", "concurrency", "tail-multiplier", "max-staleness", "queue-factor", "batch"} {
			for _, n := range settingNumbers {
				if n.name == name && corner&(1<<bit) != 0 {
					values[name] = n.most
				}
			}
		}
		check(fmt.Sprint(values))
	}
}
