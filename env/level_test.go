package env

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// TestLevels holds every task's levels to what they promise: harder ones have
// longer questions or larger summands, none is held out, and the level's number
// picks from the same prompts again and again.
func TestLevels(t *testing.T) {
	size := map[string]func(question string) int{
		"reverse": func(q string) int { return len(q) },
		"sort":    func(q string) int { return len(q) },
		"addition": func(q string) int {
			x, y, _ := strings.Cut(q, "+")
			return len(fmt.Sprint(max(number(x), number(y))))
		},
	}
	for name, sizeOf := range size {
		task := mustTask(t, name)
		if n := task.Levels(); n < 2 {
			t.Fatalf("%s has %d levels", name, n)
		}
		largest := 0
		for level := 1; level <= task.Levels(); level++ {
			most := 0
			for prompt := range uint64(300) {
				p := TrainingProblem(task, 7, prompt, level)
				checkProblem(t, task, p)
				if SplitOf(p.Prompt) != Training {
					t.Fatalf("%s level %d prompt %d is held out", name, level, prompt)
				}
				most = max(most, sizeOf(strings.TrimSuffix(task.Vocabulary().Decode(p.Prompt), "→")))
			}
			if most <= largest {
				t.Errorf("%s: level %d goes up to %d, the one below to %d", name, level, most, largest)
			}
			largest = most
		}
		whole := 0
		for prompt := range uint64(300) {
			whole = max(whole, sizeOf(strings.TrimSuffix(task.Vocabulary().Decode(TrainingProblem(task, 7, prompt, 0).Prompt), "→")))
		}
		if whole != largest {
			t.Errorf("%s: the mixture goes up to %d, its hardest level to %d", name, whole, largest)
		}
	}
}

// TestDrawsStand: level 0 draws what every run before levels drew.
func TestDrawsStand(t *testing.T) {
	for name, want := range map[string]string{
		"reverse":  "dsix→ ri→ qqzjh→",
		"addition": "421+821→ 806+756→ 770+736→",
	} {
		task := mustTask(t, name)
		var got []string
		for group := range uint64(3) {
			got = append(got, task.Vocabulary().Decode(TrainingProblem(task, 1, group+1, 0).Prompt))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: groups 1 to 3 of seed 1 play %q, want %q", name, text, want)
		}
	}
}

// TestPlayOfPromptAndLevel: a prompt of the set is played by any group alike, and
// a level that the task does not have fails the rollout in words.
func TestPlayOfPromptAndLevel(t *testing.T) {
	task := mustTask(t, "reverse")
	e := NewSingleTurn(task, 5, nil, Pruning{})
	g := port.Generation{Tokens: []int32{End}, Logprobs: []float32{-1}, Versions: []loop.Version{0}}
	play := func(group loop.GroupID, prompt int64, level int32) (string, error) {
		s, err := e.Play(context.Background(), port.RolloutRequest{ID: port.RolloutID{Group: group, Attempt: 1}, Prompt: prompt, Level: level}, script{generation: g})
		return s.Prompt, err
	}
	own, _ := play(9, 0, 0)
	for _, group := range []loop.GroupID{9, 4, 17} {
		if p, err := play(group, 9, 0); err != nil || p != own {
			t.Errorf("prompt 9 played by group %d is %q (%v), group 9's own is %q", group, p, err, own)
		}
	}
	if p, err := play(4, 0, 0); err != nil || p == own {
		t.Errorf("group 4's own prompt is %q (%v), as group 9's", p, err)
	}
	if p, err := play(9, 0, 1); err != nil || len(strings.TrimSuffix(p, "→")) != DefaultLettersMin {
		t.Errorf("at level 1 it is %q (%v), want %d letters", p, err, DefaultLettersMin)
	}
	if _, err := play(9, 0, int32(task.Levels()+1)); err == nil || !strings.Contains(err.Error(), "levels") {
		t.Errorf("a level too many gives %v", err)
	}
}

// checked answers with the tokens until the check stops it, as an engine does.
type checked struct{ tokens []int32 }

func (c checked) Sample(_ context.Context, r port.SampleRequest) (port.Generation, error) {
	var g port.Generation
	for _, token := range c.tokens {
		g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, token), append(g.Logprobs, -1), append(g.Versions, 0)
		if token == End || len(g.Tokens) == r.MaxTokens {
			return g, nil
		}
		if r.Check != nil && r.Check(g.Tokens) {
			g.Pruned = true
			return g, nil
		}
	}
	return g, nil
}

// TestPruning stops what is too long and what is wrong already, and neither what is right.
func TestPruning(t *testing.T) {
	for _, name := range Names() {
		task := mustTask(t, name)
		id := port.RolloutID{Group: 9, Attempt: 1}
		p := TrainingProblem(task, 5, 9, 0)
		for what, c := range map[string]struct {
			prune  Pruning
			answer []int32
			pruned bool
		}{
			"right":              {Pruning{Failed: true}, p.Answer, false},
			"wrong":              {Pruning{Failed: true}, wrongAt(p.Answer, 0), true},
			"wrong, unchecked":   {Pruning{}, wrongAt(p.Answer, 0), false},
			"too long":           {Pruning{Tokens: len(p.Answer) - 1}, p.Answer, true},
			"as long as allowed": {Pruning{Tokens: len(p.Answer)}, p.Answer, false},
		} {
			s, err := NewSingleTurn(task, 5, nil, c.prune).Play(t.Context(), port.RolloutRequest{ID: id}, checked{c.answer})
			if err != nil || s.Pruned != c.pruned || !c.pruned && s.Exact != (what == "right" || what == "as long as allowed") {
				t.Errorf("%s, %s: %+v, %v", name, what, s, err)
			}
		}
	}
}
