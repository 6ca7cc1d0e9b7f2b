package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// routingModel is what the config.json of the recorded model says.
var routingModel = rows.Shape{Layers: 4, TopK: 2, Experts: 8}

// routingForm is the form of its rows.
var routingForm = rows.Form{
	Header: channel.Header{Name: channel.RoutedExperts, DType: channel.U8, Row: []int{4, 2}, Align: channel.Passes},
	Wire:   rows.Numpy, Experts: 8, Routed: []bool{false, true, true, true},
}

// TestRecordedRowsAreReadAsTheyCome reads every answer of the recording as the engine does.
func TestRecordedRowsAreReadAsTheyCome(t *testing.T) {
	transcript, err := enginetest.Load(filepath.Join("testdata", routingFile))
	if err != nil {
		t.Fatal(err)
	}
	answers := routingAnswers(t)
	for _, e := range transcript.Exchanges {
		if e.Path != pathGenerate {
			continue
		}
		var asked struct {
			ID string `json:"request_id"`
		}
		if err := json.Unmarshal(e.Body, &asked); err != nil {
			t.Fatal(err)
		}
		want := answers[asked.ID]
		all := func() int { return len(routingPrompt) + 200 }
		field := rows.NewField(rows.FieldOptions{Form: &routingForm, Key: channel.RoutedExperts, Likely: all, Most: all})
		reader := rows.NewReader(t.Context(), bytes.NewReader(bytes.Join(pieces(e), nil)), []*rows.Field{field})
		passed, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		if bytes.Contains(passed, []byte(`"routed_experts":"k`)) {
			t.Errorf("%s: rows are passed on", asked.ID)
		}
		if e.Stream() {
			checkStream(t, asked.ID, passed, want)
		}
		data, n, why := field.Rows()
		switch {
		case want.field && (why != "" || n != len(want.rows) || !bytes.Equal(data, bytes.Join(want.rows, nil))):
			t.Errorf("%s: %d rows, %q", asked.ID, n, why)
		case want.field && routingForm.Judge(data) != "":
			t.Errorf("%s: %v", asked.ID, routingForm.Judge(data))
		case !want.field && why != rows.Missing:
			t.Errorf("%s: %d rows of an answer without, %q", asked.ID, n, why)
		}
		field.Release()
	}
}

// checkStream decodes what is left of a stream.
func checkStream(t *testing.T, id string, passed []byte, want routingAnswer) {
	t.Helper()
	r := upstream.Request{MaxTokens: 200}
	events, decoder := upstream.NewEventReader(bytes.NewReader(passed), &r), Dialect{}.Decoder(r, &upstream.Capabilities{Private: &learnt{generate: true}})
	var d upstream.Delta
	for {
		data, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if string(data) == "[DONE]" {
			continue
		}
		if err := decoder.Event(data, &d); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	if len(d.Tokens) != len(want.tokens) || string(d.Finish) != want.finish || len(d.MaskLengths) != 0 {
		t.Errorf("%s: %d tokens, ends by %q, want %d, %q", id, len(d.Tokens), d.Finish, len(want.tokens), want.finish)
	}
}

func TestTheRecordedFormIsLearnt(t *testing.T) {
	transcript, err := enginetest.Load(filepath.Join("testdata", routingFile))
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(transcript.Exchanges, func(e enginetest.Exchange) bool { return bytes.Contains(e.Body, []byte(`"request_id":"whole"`)) })
	var said struct {
		Choices []struct {
			Rows string `json:"routed_experts"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(bytes.Join(pieces(transcript.Exchanges[at]), nil), &said); err != nil {
		t.Fatal(err)
	}
	form, err := rows.Learn(channel.RoutedExperts, rows.Numpy, said.Choices[0].Rows, len(routingPrompt)+12-1, routingModel)
	if err != nil || !form.Same(routingForm.Header) || !slices.Equal(form.Routed, routingForm.Routed) {
		t.Errorf("%v: %+v", err, form)
	}
}

func TestMasksOfAnEvent(t *testing.T) {
	const before, after = `{"request_id":"a","choices":[{"index":0,"logprobs":{"content":[{"token":"token_id:7","logprob":-0.5},{"token":"token_id:8","logprob":-0.5}]},"finish_reason":null,"token_ids":[7,8],"routed_experts":null,"sampling_mask":`, `}],"usage":null}`
	for _, c := range []struct {
		name, masks  string
		lengths, ids []int32
	}{
		{"none", "null", nil, nil},
		{"deltas", "[[7,9],[1, 8,2]]", []int32{2, 3}, []int32{7, 9, 1, 8, 2}},
		{"an empty one", "[[7],[]]", []int32{1, 0}, []int32{7}},
		{"one that is missing", "[[7],null]", []int32{1, 0}, []int32{7}},
		{"something else", `{"a":1}`, nil, nil},
		{"something else in it", `[[7],["x"]]`, nil, nil},
		{"beyond an id", `[[7],[99999999999]]`, nil, nil},
	} {
		var d upstream.Delta
		if err := (&decoder{path: pathGenerate}).Event([]byte(before+c.masks+after), &d); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(d.MaskLengths, c.lengths) || !slices.Equal(d.MaskIDs, c.ids) || len(d.Tokens) != 2 {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestRowsAreAskedForFromAStart(t *testing.T) {
	r := upstream.Request{ID: "i", Prompt: []int32{1, 2, 3}, MaxTokens: 1, Sampling: port.Sampling{Temperature: 1}}
	plain, _ := generated(t, &learnt{generate: true}, r)
	r.Channels = []string{channel.RoutedExperts, channel.SamplingMask}
	if asked, _ := generated(t, &learnt{generate: true}, r); !bytes.Equal(asked.Body, plain.Body) {
		t.Errorf("a server that always says them is asked: %s", asked.Body)
	}
	r.Known = 2
	_, body := generated(t, &learnt{generate: true}, r)
	if start := body["sampling_params"].(map[string]any)["routed_experts_prompt_start"]; start != 2.0 {
		t.Errorf("asked for rows from %v on", start)
	}
}

func TestProbeFindsChannels(t *testing.T) {
	const experts = `"k05VTVBZAQB2AHsnZGVzY3InOiAnfHUxJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDMsIDQsIDIpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAMHAwYFAgAAAwcDBgECAAAHAgMCAgc="`
	for _, c := range []struct {
		name     string
		reply    string
		generate bool
		want     string // what is missing
	}{
		{"both", `{"choices":[{"token_ids":[3,4],"routed_experts":` + experts + `,"sampling_mask":[[3,1],[4,2]]}]}`, true, ""},
		{"no rows", `{"choices":[{"token_ids":[3,4],"routed_experts":null,"sampling_mask":[[3],[4]]}]}`, true,
			"no routed_experts (rollout.channels): its answers have none (start it with --enable-return-routed-experts --enable-scale-out, vLLM 0.22 or newer)"},
		{"no masks", `{"choices":[{"token_ids":[3,4],"routed_experts":` + experts + `}]}`, true,
			"no sampling_mask (rollout.channels): its answers have none (start it with --return-sampling-mask --logprobs-mode processed_logprobs --enable-scale-out, vLLM 0.28 or newer)"},
		{"rows as lists, as vLLM 0.21 has them", `{"choices":[{"token_ids":[3,4],"routed_experts":[[[1,2]]],"sampling_mask":[[3],[4]]}]}`, true,
			"no routed_experts (rollout.channels): its answers have them in another form than base64 (start it with --enable-return-routed-experts --enable-scale-out, vLLM 0.22 or newer)"},
		{"rows of other tokens", `{"choices":[{"token_ids":[3],"routed_experts":` + experts + `,"sampling_mask":[[3]]}]}`, true,
			"no routed_experts (rollout.channels): 24 bytes and 3 rows for 2 passes (start it with --enable-return-routed-experts --enable-scale-out, vLLM 0.22 or newer)"},
		{"the older way", `{}`, false, "no routed_experts (rollout.channels): it does not sample by /inference/v1/generate (start it with --enable-return-routed-experts --enable-scale-out, vLLM 0.22 or newer)"},
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			_, _ = io.WriteString(w, c.reply)
		}))
		s, err := upstream.NewServer(upstream.ServerOptions{URL: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		p := &prober{ctx: t.Context(), s: s, l: &learnt{generate: c.generate}, caps: &upstream.Capabilities{}}
		if err := p.channels(); err != nil || asked != 0 || len(p.caps.Missing) != 0 {
			t.Errorf("%s: without channels: %v, %d questions", c.name, err, asked)
		}
		s.Channels, s.Experts = []string{channel.RoutedExperts, channel.SamplingMask}, routingModel
		if err := p.channels(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		server.Close()
		if c.want == "" {
			if len(p.caps.Missing) != 0 || len(p.caps.Channels) != 2 || !p.caps.Channels[0].Same(routingForm.Header) {
				t.Errorf("%s: %v, %+v", c.name, p.caps.Missing, p.caps.Channels)
			}
			continue
		}
		if len(p.caps.Missing) == 0 || !strings.Contains(joined(p.caps.Missing), c.want) || !p.caps.Missing[0].Fatal {
			t.Errorf("%s: %q, want %q", c.name, joined(p.caps.Missing), c.want)
		}
	}
}

// A server that says masks refuses requests without a cut, and greedy ones, also those for the log-probs of a prompt
// (vLLM 0.32.0 with --return-sampling-mask: 500).
func TestEveryQuestionToAServerOfMasksHasACut(t *testing.T) {
	asked := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if json.NewDecoder(r.Body).Decode(&body) == nil {
			settings := body
			if nested, ok := body["sampling_params"].(map[string]any); ok {
				settings = nested
			}
			asked[r.URL.Path]++
			topK, _ := settings["top_k"].(float64)
			heat, _ := settings["temperature"].(float64)
			if topK <= 0 || heat <= 0 {
				t.Errorf("%s is asked with top_k %v and temperature %v", r.URL.Path, topK, heat)
			}
			if body["logprobs"] == -1. {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error":{"message":"Requested sample logprobs of 64, which is greater than max allowed: 20"}}`)
				return
			}
		}
		_, _ = io.WriteString(w, `{"choices":[{"text":"a","logprobs":{"token_logprobs":[-1],"top_logprobs":[{"a":-1,"b":-2}]},"prompt_logprobs":[null,{"1":{"logprob":-1}}]}]}`)
	}))
	defer server.Close()
	s, err := upstream.NewServer(upstream.ServerOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	s.Channels = []string{channel.SamplingMask}
	l := &learnt{generate: true, text: true}
	p := &prober{ctx: t.Context(), s: s, l: l, caps: &upstream.Capabilities{Model: "m", Private: l}}
	_, _ = p.ask(t.Context(), 2) // the answer is no stream
	_, _ = sampleOnly(t.Context(), s, 1, p.caps)
	_, _ = expand(t.Context(), s, []int32{1}, &media.Item{}, p.caps)
	if _, err := New().Score(t.Context(), s, []int32{0, 1}, p.caps); err != nil {
		t.Error(err)
	}
	for _, step := range []func() error{p.channels, p.distribution, p.vocabulary, p.cache} {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	if asked[pathGenerate] < 3 || asked[pathCompletions] < 8 {
		t.Errorf("asked %v", asked)
	}
}

func joined(all []upstream.Missing) string {
	var words []string
	for _, m := range all {
		words = append(words, m.String())
	}
	return strings.Join(words, "\n")
}
