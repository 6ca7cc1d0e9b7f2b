package openenv

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
)

func mustServer(t *testing.T, o Options) *Server {
	t.Helper()
	if o.StartTimeout == 0 {
		o.StartTimeout = 5 * time.Minute // the machine may be busy with others
	}
	if o.StepTimeout == 0 {
		o.StepTimeout = 5 * time.Minute
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// begun is a world that has begun its episode, and what its environment said first.
func begun(t *testing.T, s *Server, rollout string, seed int64, task *taskset.Task) (*World, string) {
	t.Helper()
	w := s.World(rollout, seed)
	t.Cleanup(func() { _ = w.Close(context.Background()) })
	messages, err := w.Begin(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if len(messages) == 0 {
		return w, ""
	}
	return w, content(t, messages[0])
}

func content(t *testing.T, message json.RawMessage) string {
	t.Helper()
	var m struct{ Content string }
	if err := json.Unmarshal(message, &m); err != nil {
		t.Fatal(err)
	}
	return m.Content
}

func act(t *testing.T, w *World, said episode.Message) (episode.Answer, string) {
	t.Helper()
	answer, err := w.Act(t.Context(), said)
	if err != nil {
		t.Fatal(err)
	}
	return answer, content(t, answer.Messages[len(answer.Messages)-1])
}

func call(name, arguments string) episode.Message {
	return episode.Message{Calls: []episode.Call{{ID: "c1", Name: name, Arguments: arguments}}}
}

// An episode with one tool whose arguments are the action: the schema's mistakes go back to the
// policy, the reward and the end are the environment's.
func TestAct(t *testing.T) {
	both(t, "guess", func(t *testing.T, url string) {
		s := mustServer(t, Options{URL: url, Show: "text"})
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		w, first := begun(t, s, "g1-s0-a0", 7, &taskset.Task{Fields: map[string]json.RawMessage{"reset": json.RawMessage(`{"high":10}`)}})
		if first != "Guess a number from 1 to 10." {
			t.Errorf("the environment began with %q", first)
		}
		if tools := string(w.Tools()); !strings.Contains(tools, `"name":"act"`) || !strings.Contains(tools, `"number"`) || strings.Contains(tools, "metadata") {
			t.Errorf("tools %s", tools)
		}
		for _, mistake := range []struct {
			said episode.Message
			want string
		}{
			{episode.Message{Text: "I think it is 5."}, "calls no tool"},
			{call("guess", `{"number":5}`), `There is no tool "guess"`},
			{call("act", `{"number":`), "not a JSON object"},
			{call("act", `{"number":"five"}`), "number: Input should be a valid integer"},
		} {
			answer, said := act(t, w, mistake.said)
			if !strings.Contains(said, mistake.want) || answer.Done || answer.Rewarded {
				t.Errorf("%+v was answered %+v %q, expected %q", mistake.said, answer, said, mistake.want)
			}
		}
		low, high := 1, 10
		for steps := 1; ; steps++ {
			middle := (low + high) / 2
			answer, said := act(t, w, call("act", `{"number":`+string(mustMarshal(middle))+`}`))
			if answer.Done {
				if said != "Right." || !answer.Rewarded || answer.Reward != 1/float64(steps) {
					t.Errorf("done with %q and %+v after %d steps", said, answer, steps)
				}
				break
			}
			if !answer.Rewarded || answer.Reward != 0 || steps > 4 {
				t.Fatalf("%+v after %d steps", answer, steps)
			}
			if said == "Higher." {
				low = middle + 1
			} else {
				high = middle - 1
			}
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Where an action is one text, the message is it; the episode's name and seed are the rollout's.
func TestText(t *testing.T) {
	both(t, "echo", func(t *testing.T, url string) {
		s := mustServer(t, Options{URL: url, Show: "text"})
		w, first := begun(t, s, "g3-s1-a2", 11, nil)
		if first != "episode g3-s1-a2 with seed 11" {
			t.Errorf("the environment began with %q", first)
		}
		for _, text := range []string{"hello", "", "ein \"Wort\"\n\u2028", strings.Repeat("long ", 20)} {
			answer, said := act(t, w, episode.Message{Text: text})
			if said != text || answer.Rewarded {
				t.Errorf("%q was answered %q, %+v", text, said, answer)
			}
		}
		_ = w.Close(t.Context())
	})
}

// An environment of MCP tools is played by its own tools; their errors are the policy's to read.
func TestTools(t *testing.T) {
	both(t, "tools", func(t *testing.T, url string) {
		w, first := begun(t, mustServer(t, Options{URL: url}), "g0-s0-a0", 0, nil)
		if first != "{}" || !strings.Contains(string(w.Tools()), `"name":"add"`) {
			t.Errorf("began with %q and tools %s", first, w.Tools())
		}
		two := call("add", `{"a":1,"b":2}`)
		two.Calls = append(two.Calls, episode.Call{ID: "c2", Name: "add", Arguments: `{"a":3,"b":4}`})
		answer, said := act(t, w, two)
		if len(answer.Messages) != 2 || content(t, answer.Messages[0]) != "3" || said != "7" {
			t.Errorf("two calls were answered %s", answer.Messages)
		}
		if _, said := act(t, w, call("add", `{"a":"one","b":2}`)); !strings.Contains(said, "valid integer") {
			t.Errorf("wrong arguments were answered %q", said)
		}
		if _, said := act(t, w, call("divide", `{}`)); !strings.Contains(said, "Unknown tool") {
			t.Errorf("an unknown tool was answered %q", said)
		}
		_ = w.Close(t.Context())
	})
}

// Over HTTP every call has an environment of its own, so that steps never add up; a world keeps one
// connection, in which they do.
func TestTrap11HTTPIsStateless(t *testing.T) {
	url := server(t, "echo")
	post := func(path, body string) string {
		response, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var got struct {
			Observation struct{ Steps int }
		}
		if err := json.NewDecoder(response.Body).Decode(&got); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: HTTP %d, %v", path, response.StatusCode, err)
		}
		return string(mustMarshal(got.Observation.Steps))
	}
	post("/reset", `{"seed":1,"episode_id":"e"}`)
	for range 3 {
		if steps := post("/step", `{"action":{"message":"hi"}}`); steps != "1" {
			t.Fatalf("HTTP has counted %s steps: it keeps an environment after all", steps)
		}
	}
	w, _ := begun(t, mustServer(t, Options{URL: url}), "e", 1, nil)
	for _, want := range []string{`"steps":1`, `"steps":2`, `"steps":3`} {
		if _, said := act(t, w, episode.Message{Text: "hi"}); !strings.Contains(said, want) {
			t.Errorf("%s, expected %s", said, want)
		}
	}
}

// The same seed is the same environment, whoever plays it.
func TestSeedIsTheEnvironment(t *testing.T) {
	s := mustServer(t, Options{URL: server(t, "guess"), Show: "text"})
	answers := func(rollout string, seed int64) (said []string) {
		w, _ := begun(t, s, rollout, seed, nil)
		defer w.Close(context.Background())
		for guess := 10; guess < 100; guess += 10 {
			_, text := act(t, w, call("act", `{"number":`+string(mustMarshal(guess))+`}`))
			said = append(said, text)
		}
		return said
	}
	if a, b := answers("g1-s0-a0", 5), answers("g1-s1-a0", 5); strings.Join(a, "") != strings.Join(b, "") {
		t.Errorf("one seed, two environments: %v, %v", a, b)
	}
}

// A row whose seed or reset is null says nothing: the group's seed and the server's parameters stay.
func TestNullsOfARowSayNothing(t *testing.T) {
	s := mustServer(t, Options{URL: "http://h", Reset: map[string]json.RawMessage{"level": json.RawMessage("3")}})
	for row, want := range map[string]string{
		`{"seed":null}`:                  `{"episode_id":"g1-s0-a0","level":3,"seed":5}`,
		`{"reset":null}`:                 `{"episode_id":"g1-s0-a0","level":3,"seed":5}`,
		`{"seed":null,"reset":null}`:     `{"episode_id":"g1-s0-a0","level":3,"seed":5}`,
		`{"reset":{"seed":null}}`:        `{"episode_id":"g1-s0-a0","level":3,"seed":5}`,
		`{"reset":{"level":null}}`:       `{"episode_id":"g1-s0-a0","level":null,"seed":5}`,
		`{"seed":7,"reset":{"level":4}}`: `{"episode_id":"g1-s0-a0","level":4,"seed":7}`,
	} {
		var task taskset.Task
		if err := json.Unmarshal([]byte(row), &task.Fields); err != nil {
			t.Fatal(err)
		}
		reset, err := s.World("g1-s0-a0", 5).reset(&task)
		if got := string(mustMarshal(reset)); err != nil || got != want {
			t.Errorf("%s is asked for as %s, %v; want %s", row, got, err, want)
		}
	}
}

// A full server is asked again until there is room, and is a failure of class quota in the end.
func TestFullServer(t *testing.T) {
	url := server(t, "guess") // has room for two
	patient := mustServer(t, Options{URL: url, Backoff: time.Millisecond})
	hasty := mustServer(t, Options{URL: url, Backoff: time.Millisecond, StartTimeout: time.Second})
	first, _ := begun(t, patient, "a", 1, nil)
	begun(t, patient, "b", 1, nil)
	if _, err := hasty.actions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := hasty.World("c", 1).Begin(t.Context(), nil); sandbox.ClassOf(err) != sandbox.Quota {
		t.Fatalf("a full server: %v, expected a quota", err)
	}
	third := patient.World("d", 1)
	defer third.Close(context.Background())
	began := make(chan error, 1)
	go func() {
		_, err := third.Begin(t.Context(), nil)
		began <- err
	}()
	_ = first.Close(t.Context())
	if err := <-began; err != nil {
		t.Fatalf("there was room again: %v", err)
	}
}

// What an environment does wrong is a failure of its class, never a reward.
func TestFailuresOfTheEnvironment(t *testing.T) {
	for _, test := range []struct {
		why     string
		options Options
		class   sandbox.Class
	}{
		{"raise", Options{}, sandbox.VerifierCrash},
		{"exit", Options{}, sandbox.Lost},
		{"sleep", Options{StepTimeout: 100 * time.Millisecond}, sandbox.VerifierTimeout},
		{"long", Options{Message: 1 << 20}, sandbox.Protocol},
	} {
		t.Run(test.why, func(t *testing.T) {
			test.options.URL = server(t, "guess")
			w, _ := begun(t, mustServer(t, test.options), "a", 1, nil)
			answer, err := w.Act(t.Context(), call("act", `{"number":0,"why":"`+test.why+`"}`))
			if sandbox.ClassOf(err) != test.class || answer.Rewarded {
				t.Errorf("%+v, %v; expected a failure of class %s", answer, err, test.class)
			}
		})
	}
	t.Run("nan", func(t *testing.T) {
		w, _ := begun(t, mustServer(t, Options{URL: server(t, "guess")}), "a", 1, nil)
		if answer, _ := act(t, w, call("act", `{"number":0,"why":"nan"}`)); answer.Rewarded {
			t.Errorf("a reward that is no number is %+v", answer)
		}
	})
}

// A field to show that is null shows nothing, and nothing else of the observation.
func TestShowNull(t *testing.T) {
	s := mustServer(t, Options{URL: "http://127.0.0.1:1", Show: "prompt", Shown: 100})
	for text, want := range map[string]string{`{"prompt":null,"secret":"42"}`: "", `{"prompt":"p","secret":"42"}`: "p"} {
		var o observation
		if err := json.Unmarshal([]byte(`{"observation":`+text+`}`), &o); err != nil {
			t.Fatal(err)
		}
		if shown, err := s.show(o); err != nil || shown != want {
			t.Errorf("%s is shown as %q, %v", text, shown, err)
		}
	}
	if shown, err := s.show(observation{}); err == nil {
		t.Errorf("a field that is not there is shown as %q", shown)
	}
}
