package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/env/sandbox"
)

// All that a pool counts is exported, each under its name.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		d.create = func(n int) (time.Duration, error) {
			if n == 1 {
				return 0, errStart
			}
			return 20 * time.Millisecond, nil
		}
		d.command = func(*fakeBox, sandbox.Command) (sandbox.Result, error) {
			return sandbox.Result{Limit: sandbox.Timeout}, nil
		}
		p := opened(t, d, Options{WarmMin: 2})
		time.Sleep(5 * time.Second)
		l := lease(t, p, "a")
		if _, err := l.Run(t.Context(), program); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(p)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range families {
			for _, m := range f.GetMetric() {
				class := ""
				for _, label := range m.GetLabel() {
					class += "{" + label.GetName() + "=" + label.GetValue() + "}"
				}
				value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
				if h := m.GetHistogram(); h != nil {
					value = float64(h.GetSampleCount())
				}
				got = append(got, fmt.Sprint(strings.TrimPrefix(f.GetName(), "headway_sandbox_"), class, " ", value))
			}
		}
		want := []string{"leased 1", "warm 2", "starting 0", "waiting 0", "created_total 1", "reused_total 0", "hits_total 1",
			"start_seconds 3", "wait_seconds 1", "failures_total{class=start_failed} 1", "limits_total{class=timeout} 1", "orphans_total 0", "broken 0"}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("exported:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		ended(t, p, d)
	})
}
