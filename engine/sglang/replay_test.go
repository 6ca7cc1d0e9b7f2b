package sglang

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
)

// conversations are the recordings of testdata, each of a server that was started in its own way,
// with what Probe finds there. The model has 64 tokens and a context of 256.
var conversations = map[string]struct {
	flags string
	want  func(c *upstream.Capabilities)
}{
	"cumulative.txt":  {"--log-steps", func(*upstream.Capabilities) {}},
	"incremental.txt": {"--incremental-streaming-output --logprobs scaled", func(c *upstream.Capabilities) { c.ProcessedLogprobs = false }},
}

// converse says to a server what a recording has, and checks what it answers.
func converse(t *testing.T, address string) *upstream.Capabilities {
	t.Helper()
	s, caps := probed(t, address)
	short := request("short", 12, 3)
	short.Sampling.Stop = []string{"\"\né"}
	st := open(t, s, caps, short)
	st.until(t, all)
	n := len(st.delta.Tokens)
	if n == 0 || n != len(st.delta.Logprobs) || st.delta.Finish == "" || len(st.delta.Spans) != 1 || st.delta.Spans[0].End != n {
		t.Errorf("%d tokens, %d log-probs, ended by %q, spans %+v", n, len(st.delta.Logprobs), st.delta.Finish, st.delta.Spans)
	}
	aborted := open(t, s, caps, request("aborted", 200, 5))
	aborted.until(t, 3)
	if err := New().Pause(limited(t), s, upstream.Update{Cache: upstream.CacheSalt}, caps); err != nil {
		t.Fatal(err)
	}
	if err := New().Abort(limited(t), s, aborted.request.ID, caps); err != nil {
		t.Fatal(err)
	}
	if err := New().Resume(limited(t), s, caps); err != nil {
		t.Fatal(err)
	}
	aborted.until(t, all)
	if d := aborted.delta; d.Finish != upstream.FinishAbort || len(d.Tokens) < 3 || len(d.Tokens) != len(d.Logprobs) {
		t.Errorf("aborted: %d tokens, %d log-probs, ended by %q", len(d.Tokens), len(d.Logprobs), d.Finish)
	}
	err := New().Update(limited(t), s, upstream.Update{Label: "v1", Dir: "/nowhere", Cache: upstream.CacheSalt}, caps)
	if upstream.StatusOf(err) != http.StatusBadRequest {
		t.Errorf("an update from nowhere: %v", err)
	}
	if version, err := New().Version(limited(t), s, caps); err != nil || version != "default" {
		t.Errorf("it serves %q: %v", version, err)
	}
	if tokens, err := New().Encode(limited(t), s, "a b", caps); err != nil || !slices.Equal(tokens, []int32{23, 22, 24}) {
		t.Errorf("the text has the tokens %v: %v", tokens, err)
	}
	return caps
}

// TestRecord records a conversation of testdata with the server that the environment names.
func TestRecord(t *testing.T) {
	file := os.Getenv("HEADWAY_RECORD")
	if file == "" {
		t.Skip("HEADWAY_RECORD is not set: a file of testdata to record anew with the server of HEADWAY_TEST_SGLANG")
	}
	how, ok := conversations[file]
	if !ok {
		t.Fatalf("%s is none of the conversations", file)
	}
	recorder := enginetest.NewRecorder(os.Getenv("HEADWAY_TEST_SGLANG"), nil)
	defer recorder.Close()
	caps := converse(t, recorder.URL())
	recorder.Settle()
	transcript := recorder.Transcript(caps.Software + " on a CPU, started with " + how.flags)
	transcript.Scrub(nil)
	if err := transcript.Save("testdata/" + file); err != nil {
		t.Fatal(err)
	}
}

// TestReplay holds the same conversations with the recordings.
func TestReplay(t *testing.T) {
	for file, how := range conversations {
		t.Run(file, func(t *testing.T) {
			transcript, err := enginetest.Load("testdata/" + file)
			if err != nil {
				t.Fatal(err)
			}
			replay := enginetest.NewReplay(transcript)
			defer replay.Close()
			caps := *converse(t, replay.URL())
			want := upstream.Capabilities{Software: "hf_shim 0.1.0", Model: "policy", Vocabulary: 64, Context: 256, Spare: spareTokens, Slots: 64, Uncached: true, TokenIDs: true, Logprobs: true,
				ProcessedLogprobs: true, VersionSpans: true, Pause: true, UpdateDisk: true, UpdateDistributed: true, Ranks: 1, Flush: true, Salt: true, Template: true, Score: true}
			how.want(&want)
			if paths := []string{"/generate", "/pause_generation"}; slices.ContainsFunc(paths, func(p string) bool { return !caps.Paths[p] }) {
				t.Errorf("it lists %v", caps.Paths)
			}
			missing := caps.Missing
			caps.Paths, caps.Missing, caps.Private = nil, nil, nil
			if got, want := describe(caps), describe(want); got != want {
				t.Errorf("found %s\nwant  %s", got, want)
			}
			if lacks := 2; len(missing) != lacks && want.ProcessedLogprobs || len(missing) != lacks+1 && !want.ProcessedLogprobs {
				t.Errorf("it is said to lack %+v", missing)
			}
			if left := append(replay.Missed(), replay.Unasked()...); len(left) > 0 {
				t.Errorf("asked and not recorded, or recorded and not asked: %v", left)
			}
		})
	}
}

// describe writes capabilities so that they can be compared and read.
func describe(c upstream.Capabilities) string { return fmt.Sprintf("%+v", c) }
