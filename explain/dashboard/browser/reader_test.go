package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// hostile is what a prompt may contain. None of it may become markup, let alone run.
const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=2</script><b>bold</b> & "quotes" </div>`

// spelledGroup is one of whose tokens the ids are known, and whose text is known as a whole alone.
const spelledGroup = 9

// scripted serves the pages over answers that no run of ours gives: hostile text, a token, faults.
type scripted struct {
	token string
	// broken answers every request for data with an error while it is true.
	broken func() bool
	// shut refuses rollouts to the token.
	shut bool
}

func (s scripted) serve(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir("../assets")))
	answer := func(path string, make func(*http.Request) any) {
		mux.HandleFunc("GET /api/v1/view/"+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token:
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprint(w, `{"error":{"code":"unauthorized","message":"a token is needed"}}`)
			case s.shut && strings.HasPrefix(path, "groups"):
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"error":{"code":"forbidden","message":"prompts are for a token of role trainer or admin"}}`)
			case s.broken != nil && s.broken():
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintf(w, `{"error":{"code":"unavailable","message":%q}}`, "the store is full "+hostile)
			default:
				if err := json.NewEncoder(w).Encode(make(r)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	type object = map[string]any
	answer("info", func(*http.Request) any {
		return object{"name": "run " + hostile, "kind": "run", "program": "headway", "config": "trainer:\n  clip_epsilon: 0.3\nstore:\n  samples_every: 25\n", "task": hostile, "policy": "drop",
			"group_size": 2, "batch_groups": 1, "queue_groups": 1, "steps": 3, "engines": []string{hostile}, "has_tokens": true, "has_text": true}
	})
	answer("summary", func(*http.Request) any {
		ledger, health := object{}, object{"sentence": "The sentence " + hostile, "binding": "train"}
		for _, name := range strings.Fields("admitted in_flight waiting queued leased trained evicted discarded filtered pruned cancelled failed") {
			ledger[name] = 1
		}
		for _, name := range strings.Fields("production_rollouts_per_s effective_rollouts_per_s consumption_rollouts_per_s consumption_rollouts_per_wall_s queue_trend_groups_per_step trainer_idle_ratio rollout_idle_ratio tokens_per_s period_s step_s acceptance dropped_share") {
			health[name] = 0.5
		}
		return object{"at_ns": 5e9, "ended": true, "state": "stopped", "version": 3, "health": health, "ledger": ledger, "balanced": true, "staleness": object{"mean": 1, "histogram": []int{1}},
			"queue": object{"groups": 1, "capacity_groups": 1, "batch_groups": 1}, "engines": []object{{"name": hostile, "state": hostile, "version": 2, "active": 1, "slots": 2}},
			"reward": object{}, "signal": object{}, "length": object{}, "latency": object{}, "waste": object{}, "attribution": nil, "predicted": nil, "held_out": nil, "reading": nil}
	})
	answer("series", func(*http.Request) any {
		return object{"step": []int{1, 2, 3}, "time_s": []float64{1, 2, 3}, "columns": object{"reward": []any{0, nil, 1}, "staleness": []any{0, 1, 1}}}
	})
	answer("findings", func(*http.Request) any {
		return object{"run": "r", "source": "run", "settled": object{"ok": false, "why": "30 steps are worth only 12 independent ones", "more_steps": 50, "from_step": 1, "steps": 30},
			"fitted": object{}, "compared": nil, "attribution": nil, "findings": []object{}, "drift": nil, "warnings": nil}
	})
	answer("queue", func(*http.Request) any { return object{"state": object{}, "ready": []any{}, "open": []any{}} })
	line := func(id int) object {
		return object{"id": id, "step": id - 4, "end": "trained", "staleness": 1, "reward_mean": 0.5, "reward_min": 0, "reward_max": 1, "tokens": 6, "prompt": hostile, "readable": true}
	}
	answer("groups", func(r *http.Request) any {
		if r.URL.Query().Get("q") == "nothing" {
			return object{"groups": []object{}, "next": 0}
		}
		return object{"groups": []object{line(7), line(6), line(5)}, "next": 0}
	})
	answer("groups/{id}", func(r *http.Request) any {
		var id int
		_, _ = fmt.Sscan(r.PathValue("id"), &id)
		group := line(id)
		group["start_version"], group["ready_version"], group["prompt_text"] = 1, 2, hostile
		group["meta"] = map[string][]string{hostile: {hostile}}
		var rollouts []object
		for sample := range 2 {
			rollouts = append(rollouts, object{"sample": sample, "attempt": 1, "reward": float64(sample), "advantage": nil, "turns": []object{
				{"role": "policy", "text": "one" + hostile, "pieces": []string{"one", hostile, "\n"}, "ids": []int{11, 22, 33}, "logprobs": []float64{-0.5, -2, 0}, "versions": []int{1, 1, 2}, "log_ratios": []any{0.01, -0.9, nil}},
				{"role": "tool", "name": hostile, "text": hostile}, {"role": "verifier", "text": hostile}}})
		}
		if id == spelledGroup {
			rollouts = []object{{"sample": 0, "attempt": 1, "reward": 1.0, "advantage": nil, "turns": []object{
				{"role": "policy", "text": "33", "ids": []int{9, 9, 4}, "logprobs": []float64{-0.5, -2, 0}, "versions": []int{1, 1, 2}},
				{"role": "tool", "text": "go on"}, {"role": "policy", "text": "", "ids": []int{7, 8}}, {"role": "verifier", "name": "expected", "text": "33"}}}}
		}
		group["rollouts"] = rollouts
		return group
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// untouched fails where text became markup or ran.
func (p *tab) untouched() {
	p.t.Helper()
	if found := eval[string](p, "String(window.hacked) + document.querySelectorAll('#app img, #app script, #app b b').length"); found != "undefined0" {
		p.t.Errorf("text became markup: %s", found)
	}
}

// HTML in prompts, names and errors is shown as the text it is.
func TestTextIsNeverMarkup(t *testing.T) {
	broken := false
	address := scripted{broken: func() bool { return broken }}.serve(t)
	p := openTab(t, wide, address)
	p.allowed = func(problem string) bool {
		return strings.Contains(problem, "404") || strings.Contains(problem, "503")
	}
	p.waitText(`The sentence <img src=x onerror="window.hacked=1">`)
	p.untouched()
	p.do(clickOn("nav a[href$='rollouts']"))
	p.wait("document.querySelector('.prompt-text')?.innerText.includes('<script>window.hacked=2</script>')")
	p.wait("document.querySelectorAll('.rollout').length === 2")
	p.untouched()
	broken = true
	p.do(clickOn("nav a[href$='queue']"))
	p.waitText("The queue could not be read.")
	p.waitText("the store is full <img")
	p.untouched()
}

// The reader goes through groups and siblings by keys, and says what is known of a token.
func TestRolloutsByKeys(t *testing.T) {
	p := openTab(t, wide, scripted{}.serve(t)+"#/rollouts")
	at := func(id int) { t.Helper(); p.wait(fmt.Sprintf("location.hash.includes('group=%d')", id)) }
	at(7)
	p.keys("j")
	at(6)
	p.keys("j", "j", "k")
	at(6)
	p.wait("document.getElementById('h-group-')?.innerText === 'Group 6' && document.querySelectorAll('.rollout').length === 2")
	p.keys("n")
	p.wait("document.querySelector('.rollout.chosen').getAttribute('aria-label') === 'Sibling 1'")
	p.keys("p")
	p.wait("document.querySelector('.rollout.chosen').getAttribute('aria-label') === 'Sibling 0'")

	eval[bool](p, "document.querySelector('.text[role=application]').focus(); true")
	p.wait("document.querySelector('.readout')?.innerText.includes('\"one\"')")
	p.keys("\u0303") // the right arrow
	for _, want := range []string{"id 22", "−2.0000", "0.135", "v1", "−0.9000", "0.407"} {
		p.wait(fmt.Sprintf("document.querySelector('.readout').innerText.replace(/\\s+/g, ' ').includes(%q)", want))
	}
	// Of the ratios 1.01 and 0.41 one is outside 1 ± 0.3, which the run's config says.
	p.wait("[...document.querySelectorAll('.rollout.chosen .token')].map(e => e.classList.contains('outside')).join() === 'false,true,false'")
	p.do(clickOn("[aria-label='Colour of tokens'] button:nth-of-type(2)"))
	p.wait("[...document.querySelectorAll('.rollout.chosen .token')].map(e => e.classList.contains('starts')).join() === 'false,false,true'")
	p.set("input[type=search]", "nothing")
	p.waitText("No group is like that.")
}

// Where the ids of tokens are known and their text is not, the text of the whole is what the policy said.
func TestIdsOfTokensAreNotTheAnswer(t *testing.T) {
	p := openTab(t, wide, scripted{}.serve(t)+"#rollouts?group="+strconv.Itoa(spelledGroup))
	p.wait("document.querySelectorAll('.turn.policy').length === 2")
	said := eval[string](p, "document.querySelector('.turn.policy > .text')?.innerText ?? ''")
	ids := eval[string](p, "[...document.querySelectorAll('.turn.policy .ids')].map(e => e.innerText.replaceAll(/\\s+/g, ' ')).join('; ')")
	if said != "33" || ids != "its token ids 9 9 4; token ids; their text is not kept 7 8" {
		t.Errorf("the policy says %q, with %q", said, ids)
	}
	p.do(clickOn(".turn.policy .ids [data-i='2']"))
	p.wait("document.querySelector('.readout')?.textContent.includes('id 4')")
	if text := eval[string](p, "document.querySelector('.readout').textContent"); strings.Contains(text, "token") {
		t.Errorf("a token without text is said as one: %q", text)
	}
	p.waitText("Text is kept of some groups of every 25th train step (store.samples_every).")
	p.picture("rollouts-ids")
}

// Where a token is wanted the page asks for it, keeps it in the tab, and says when it is not the one.
func TestTokenIsAskedFor(t *testing.T) {
	address := scripted{token: "sesame"}.serve(t)
	p := openTab(t, wide, address)
	p.allowed = func(problem string) bool { return strings.Contains(problem, "401") }
	p.waitText("This server asks for a token")
	p.wait("document.activeElement.type === 'password'")
	p.keys("w", "r", "o", "n", "g", "\r")
	p.waitText("The token is not known.")
	eval[bool](p, "document.querySelector('input[type=password]').value = ''; document.querySelector('input[type=password]').focus(); true")
	p.keys("s", "e", "s", "a", "m", "e", "\r")
	p.waitText("Queue health")
	p.do(chromedp.Navigate(address))
	p.waitText("Queue health")
	if kept := eval[string](p, "String(sessionStorage.getItem('headway-token')) + localStorage.length"); kept != "sesame0" {
		t.Errorf("kept %q, want the token in the tab alone", kept)
	}
}

// What has not settled, and when it will have, are two sentences.
func TestWhatHasNotSettledIsASentence(t *testing.T) {
	p := openTab(t, wide, scripted{}.serve(t)+"#findings")
	p.wait("document.querySelector('.banner')?.textContent.includes('12 independent ones.')")
}

// Where a token may not read rollouts the page says whose may, and shows everything else.
func TestRolloutsThatATokenMayNotRead(t *testing.T) {
	address := scripted{shut: true}.serve(t)
	p := openTab(t, wide, address)
	p.allowed = func(problem string) bool { return strings.Contains(problem, "403") }
	p.waitText("Queue health")
	p.do(chromedp.Navigate(address + "/#/rollouts?group=4"))
	p.waitText("prompts are for a token of role trainer or admin")
	p.waitText("Rollouts are not for this token.")
}

// A reader who goes on just as the list of groups is drawn stays where they went: the group that the reader of
// rollouts opens by itself does not call them back. Effects come by a timer without a delay, after the frame: the
// first one with the list there is preceded by the click.
func TestALeftViewCallsNobodyBack(t *testing.T) {
	p := openTab(t, wide, scripted{}.serve(t))
	eval[bool](p, `(later => {
		window.setTimeout = (call, ms, ...rest) => later(() => {
			if (ms === undefined && !window.left && document.querySelector("main .list li")) {
				window.left = true;
				document.querySelector("nav a[href$='queue']").click();
				later(() => { window.settled = true; }, 100);
			}
			call(...rest);
		}, ms);
		return true;
	})(window.setTimeout)`)
	p.do(clickOn("nav a[href$='rollouts']"))
	p.wait("window.settled")
	if at := eval[string](p, "location.hash"); at != "#/queue" {
		t.Errorf("the reader went to #/queue and is at %s", at)
	}
}
