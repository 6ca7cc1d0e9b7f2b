package origin

import (
	"reflect"
	"slices"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop/trace"
)

// What differs between two documents is named by its key, also within a list.
func TestChangesOfADocument(t *testing.T) {
	read := func(text string) config.Config {
		t.Helper()
		c, err := config.Parse("test", []byte(text))
		if err == nil {
			c, err = c.Resolve()
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := read("engines: [{name: a, slots: 8}, {name: b, slots: 8}]\nenvironment: {name: words}\n")
	if same := changes(before, before); len(same) > 0 {
		t.Errorf("a document differs from itself: %q", same)
	}
	now := read("engines: [{name: a, slots: 8}, {name: c, slots: 8}]\nfilter: {solve_rate: {drop: true, high: 0.9}}\n")
	want := []string{`filter.solve_rate.drop began as "false", now "true"`, `engines.1.name began as "b", now "c"`, `environment.name began as "words", now ""`,
		`filter.solve_rate.low began without a value, now "0.1"`, `filter.solve_rate.high began without a value, now "0.9"`}
	if got := changes(before, now); !slices.Equal(got, want) {
		t.Errorf("it says\n%q, want\n%q", got, want)
	}
}

// TestAdoptTakesKeysThatAreGone: what is free to change may also be left out, where the run began with it.
func TestAdoptTakesKeysThatAreGone(t *testing.T) {
	read := func(text string) config.Config {
		t.Helper()
		c, err := config.Parse("test", []byte("model: {path: m}\n"+text))
		if err == nil {
			c, err = c.Resolve()
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	began := read("server: {token_file: t, tls_cert: c, tls_key: k}\nstore: {nats: {url: 'nats://a:1', credentials: c}}\nengines: [{kind: vllm, url: 'http://a:1', slots: 8, weights_dir: /w, key_file: f}]\n")
	now := read("engines: [{kind: vllm, url: 'http://b:1', slots: 8}]\n")
	merged, _, err := Adopt("r", "runs/r", "", trace.Header{Loop: began.LoopConfig(), Config: string(began.YAML())}, now)
	if err != nil || merged.Server.TokenFile != "" || merged.Engines[0].WeightsDir != "" || merged.Store.NATS.URL != "" {
		t.Errorf("%v: %s", err, merged.YAML())
	}
	other := read("engines: [{kind: vllm, url: 'http://b:1', slots: 4}]\n")
	if _, _, err := Adopt("r", "runs/r", "", trace.Header{Loop: began.LoopConfig(), Config: string(began.YAML())}, other); err == nil {
		t.Error("other slots were taken")
	}
}

// A run that another build began goes on by its own rules, of which that build set some by itself.
func TestAdoptTakesTheRulesOfTheRun(t *testing.T) {
	c, err := config.Parse("test", []byte("engines: [{name: a, slots: 8}]\n"))
	if err == nil {
		c, err = c.Resolve()
	}
	if err != nil {
		t.Fatal(err)
	}
	began := c.LoopConfig()
	began.ResumeRestart = !began.ResumeRestart
	merged, rules, err := Adopt("r", "runs/r", "", trace.Header{Loop: began, Config: string(c.YAML())}, c)
	if err != nil || !reflect.DeepEqual(rules, began) || len(changes(merged, c)) > 0 {
		t.Errorf("%v; the rules\n%+v, want\n%+v; changes %v", err, rules, began, changes(merged, c))
	}
}
