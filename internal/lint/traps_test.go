package lint

import (
	"fmt"
	"go/ast"
	"os"
	"strings"
	"testing"
)

// trap is a habit of a server that spoils a run without a word. Its number is that of the specification of protocols.
type trap struct {
	habit string
	// costs is what happens to who does not know it.
	costs string
	// tests hold that Headway goes round it: package and function.
	tests []string
}

// traps are numbered from 1. docs/engine-traps.md prints them, generated from here.
var traps = []trap{
	{"SGLang streams either all of the response in every event or what is new in it", "tokens twice, or most of them never", []string{"engine/sglang TestStreams"}},
	{"vLLM has two shapes of log-probs, and −9999 for one that it does not know", "an importance ratio of e⁹⁹⁹⁹", []string{"engine/vllm TestEvents", "engine/upstream TestLiesAreErrors"}},
	{"finish_reason is a word at vLLM and an object at SGLang", "a truncated response counts as a whole one", []string{"engine/vllm TestEvents", "engine/sglang TestStreams"}},
	{"SGLang aborts every request whose id begins with the given one", "one abort ends the siblings too", []string{"engine/upstream TestTrap4NoIDIsTheBeginningOfAnother", "engine/upstream TestTrap4AnAbortStopsOneResponse"}},
	{"SGLang aborts what is under way with an update of weights or of their label, unless told not to", "every switch costs all rollouts in flight", []string{"engine/sglang TestTrap5AnUpdateAbortsNothing", "engine/sglang TestUpdateDistributed", "engine/sglang TestTraps"}},
	{"SGLang answers 400 to a flush while it is paused in place", "the update counts as failed", []string{"engine/sglang TestTrap6NothingIsFlushedInPlace", "engine/sglang TestTraps"}},
	{"a server stays paused after an update that failed", "the fleet stands still", []string{"engine/upstream TestTrap7AFailedSwitchLeavesNothingPaused"}},
	{"max_tokens is 16 where a completion does not say it", "responses of 16 tokens", []string{"engine/upstream TestTrap8EveryCallSaysHowManyTokens"}},
	{"a router repeats a request whose answer breaks off", "a response is sampled twice, and the log has the other one", []string{"engine/upstream TestTrap9WhatIsToldIsNotSampledAgain"}},
	{"spans of versions count from the response's first token at one server and from the prompt's at the other", "tokens of the wrong version", []string{"engine/upstream TestTrap10SpansCountFromTheResponseOrFromThePrompt", "engine/upstream TestTrap10ThroughSwitches"}},
	{"OpenEnv's /reset and /step make a new environment each over HTTP", "every step is a first one", []string{"env/episode/openenv TestTrap11HTTPIsStateless"}},
	{"a delta by xor, applied twice, is the old weights", "an engine serves another version than it says", []string{"store/weights TestDeltaTwice"}},
	{"the parts of one forward_backward are requests of their own, whose order is their seq_id at Tinker, a condition at TuFT and the order of arrival at SkyRL", "a gradient of half a batch, or of one and a half", []string{"internal/tinker TestTrap13PartsAreExecutedInOrder"}},
	{"llama-server cuts the distribution by samplers that a request does not name", "log-probs of another distribution", []string{"engine/llamacpp TestEverySamplerIsNamed"}},
	{"an error comes inside an answer of status 200, and a stream ends without its end mark", "half a response counts as a whole one", []string{"engine/upstream TestTrap15AnErrorInside200FailsTheSampleInTheEnd"}},
	{"E2B ends a sandbox after 15 s where no lifetime is asked for", "tools die in the middle of an episode", []string{"env/sandbox/e2b TestTrap16LifetimeIsAlwaysSent"}},
	{"streams of vLLM 0.30 lose the rows of experts: always where they are aborted, now and then where two chunks are joined", "experts are replayed for some tokens and not for others", []string{"engine/vllm TestRecordedRouting"}},
	{"rows of experts of a cached prefix are those of the weights that filled the cache, also after a switch", "experts of another version than the one that sampled", []string{"engine/vllm TestRecordedRoutingAgrees"}},
	{"older servers read past the first row that is asked for, and say all", "rows counted twice, each off by the rows before", []string{"engine/upstream TestAServerThatIgnoresTheStart"}},
	{"routed experts are all zero, repeated or beyond the last one where a server has lost them", "every token of a layer is replayed to expert 0", []string{"engine/upstream TestRowsThatAreDropped", "engine/rows TestJudge"}},
}

// TestTrapsAreTested: each has its tests, by the names that the document gives.
func TestTrapsAreTested(t *testing.T) {
	there := map[string]bool{}
	for _, f := range sources(t) {
		if !f.test {
			continue
		}
		for _, declared := range f.syntax.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && function.Recv == nil {
				there[f.room+" "+function.Name.Name] = true
			}
		}
	}
	for i, known := range traps {
		if len(known.tests) == 0 {
			t.Errorf("trap %d has no test: %s", i+1, known.habit)
		}
		for _, name := range known.tests {
			if !there[name] {
				t.Errorf("trap %d: there is no test %s", i+1, name)
			}
		}
	}
}

// The table of traps in docs/engine-traps.md is the list above.
func TestTrapsAreCurrent(t *testing.T) {
	var table strings.Builder
	table.WriteString("| | habit | what it costs who does not know it | held by |\n|---|---|---|---|\n")
	for i, known := range traps {
		fmt.Fprintf(&table, "| %d | %s | %s | `%s` |\n", i+1, known.habit, known.costs, strings.Join(known.tests, "`, `"))
	}
	generated(t, "docs/engine-traps.md", "traps", table.String())
}

// generated holds that a document's generated part is up to date, and with -rewrite makes it so.
func generated(t *testing.T, document, name, part string) {
	t.Helper()
	text, err := os.ReadFile(root + "/" + document)
	if err != nil {
		t.Fatal(err)
	}
	want, err := between(string(text), name, part)
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	if want == string(text) {
		return
	}
	if !*rewrite {
		t.Fatalf("the part %s of %s is not what it is generated from: go test ./internal/lint -rewrite", name, document)
	}
	if err := os.WriteFile(root+"/"+document, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
