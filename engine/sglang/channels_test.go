package sglang

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

func TestChannelsAreAskedFor(t *testing.T) {
	r := upstream.Request{ID: "a|", Prompt: []int32{5, 6, 7}, MaxTokens: 9, Sampling: port.Sampling{Temperature: 1, TopK: 3}}
	body := func(r upstream.Request) map[string]any {
		call, err := New().Generate(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]any
		if err := json.Unmarshal(call.Body, &body); err != nil {
			t.Fatalf("%v: %s", err, call.Body)
		}
		return body
	}
	want := body(r)
	r.Channels = []string{channel.RoutedExperts, channel.SamplingMask, upstream.IndexerTopK}
	want["return_routed_experts"], want["return_sampling_mask"], want["return_indexer_topk"] = true, true, true
	if got := body(r); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	r.Known, want["routed_experts_start_len"] = 2, 2.0
	if got := body(r); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestMasksOfStreams(t *testing.T) {
	masks := func(ids string) string { return `,"output_token_sampling_mask":[` + ids + `]` }
	for _, c := range []struct {
		name         string
		events       []string
		lengths, ids []int32
	}{
		{"cumulative", []string{
			event(`"a"`, "7", "[-0.5,7,null]", "null", 1, masks("[7,1]")),
			event(`"ab"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, masks("[7,1],[8]")),
			event(`"abc"`, "7,8,9", "[-0.5,7,null],[-1,8,null],[-1.25,9,null]", lengthReason, 3, masks("[7,1],[8],[2,9]")),
		}, []int32{2, 1, 2}, []int32{7, 1, 8, 2, 9}},
		{"incremental", []string{
			event(`"a"`, "7", "[-0.5,7,null]", "null", 1, masks("[7,1]")),
			event(`"b"`, "8", "[-1,8,null]", "null", 2, masks("[8]")),
			event(`"c"`, "9", "[-1.25,9,null]", lengthReason, 3, masks("[2,9]")),
		}, []int32{2, 1, 2}, []int32{7, 1, 8, 2, 9}},
		{"incremental log-probs, masks that repeat all", []string{
			event(`"a"`, "7", "[-0.5,7,null]", "null", 1, masks("[7,1]")),
			event(`"b"`, "8", "[-1,8,null]", "null", 2, masks("[7,1],[8]")),
			event(`"c"`, "9", "[-1.25,9,null]", lengthReason, 3, masks("[7,1],[8],[2,9]")),
		}, []int32{2, 1, 2}, []int32{7, 1, 8, 2, 9}},
		{"none", []string{
			event(`"a"`, "7", "[-0.5,7,null]", "null", 1, `,"output_token_sampling_mask":null`),
			event(`"b"`, "8,9", "[-1,8,null],[-1.25,9,null]", lengthReason, 3, ""),
		}, nil, nil},
		{"of another number, which is none", []string{
			event(`"a"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, masks("[7],[8],[9]")),
			event(`"b"`, "9", "[-1.25,9,null]", lengthReason, 3, masks("[7],[8]")),
		}, nil, nil},
		{"something else", []string{
			event(`"a"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, masks(`"x",[8]`)),
			event(`"b"`, "9", "[-1.25,9,null]", lengthReason, 3, masks(`{}`)),
		}, nil, nil},
	} {
		d := decoder{}
		var got upstream.Delta
		for _, e := range c.events {
			if err := d.Event([]byte(e), &got); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if !slices.Equal(got.Tokens, []int32{7, 8, 9}) || !slices.Equal(got.MaskLengths, c.lengths) || !slices.Equal(got.MaskIDs, c.ids) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// Log-probs over what was kept take the place of those over all ids, in streams that repeat and in those that do not,
// and in events that the scanner leaves to encoding/json.
func TestLogprobsOverWhatMasksKept(t *testing.T) {
	drawn := func(list string) string { return `,"output_token_sampling_logprobs":` + list }
	first := event(`"a"`, "7", "[-0.5,7,null]", "null", 1, drawn("[-0.25]"))
	for name, c := range map[string]struct {
		events []string
		want   []float32
	}{
		"cumulative": {[]string{first, event(`"ab"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, drawn("[-0.25,-0.75]")),
			event(`"abc"`, "7,8,9", "[-0.5,7,null],[-1,8,null],[-1.25,9,null]", lengthReason, 3, drawn("[-0.25,-0.75,0.0]"))}, []float32{-0.25, -0.75, 0}},
		"incremental": {[]string{first, event(`"b"`, "8", "[-1,8,null]", "null", 2, drawn("[-0.75]")), event(`"c"`, "9", "[-1.25,9,null]", lengthReason, 3, drawn("[0.0]"))}, []float32{-0.25, -0.75, 0}},
		"repeats all": {[]string{first, event(`"b"`, "8", "[-1,8,null]", "null", 2, drawn("[-0.25,-0.75]")), event(`"c"`, "9", "[-1.25,9,null]", lengthReason, 3, drawn("[-0.25,-0.75,0.0]"))}, []float32{-0.25, -0.75, 0}},
		"none":        {[]string{event(`"a"`, "7", "[-0.5,7,null]", "null", 1, drawn("null")), event(`"b"`, "8,9", "[-1,8,null],[-1.25,9,null]", lengthReason, 3, "")}, []float32{-0.5, -1, -1.25}},
		"no numbers":  {[]string{event(`"a"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, drawn(`[-0.25,"x"]`)), event(`"c"`, "9", "[-1.25,9,null]", lengthReason, 3, drawn("{}"))}, []float32{-0.5, -1, -1.25}},
		"a null":      {[]string{event(`"a"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, drawn("[-0.25,null]")), event(`"c"`, "9", "[-1.25,9,null]", lengthReason, 3, drawn("[null]"))}, []float32{-0.5, -1, -1.25}},
		"too many":    {[]string{event(`"a"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, drawn("[-1,-2,-3]")), event(`"c"`, "9", "[-1.25,9,null]", lengthReason, 3, drawn("[0.0,0.0]"))}, []float32{-0.5, -1, -1.25}},
	} {
		d := decoder{}
		var got upstream.Delta
		for _, e := range c.events {
			if err := d.Event([]byte(e), &got); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if !slices.Equal(got.Tokens, []int32{7, 8, 9}) || !slices.Equal(got.Logprobs, c.want) {
			t.Errorf("%s: %+v, want log-probs %v", name, got, c.want)
		}
	}
}

// int32s are numbers as SGLang writes them.
func int32s(ids ...int32) string {
	var b []byte
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func TestProbeFindsChannels(t *testing.T) {
	model := rows.Shape{Layers: 2, TopK: 2, Experts: 160}
	experts := int32s(0, 0, 3, 159, 0, 0, 5, 1, 0, 0, 2, 8)
	indexer := int32s(0, -1, -1, 0, -1, -1, 0, 1, -1, 1, 0, -1, 0, 2, 1, 1, 0, 2)
	status, meta := 200, `"completion_tokens":2,"routed_experts":"`+experts+`","indexer_topk":"`+indexer+`","output_token_sampling_mask":[[1],[2]],"output_token_sampling_logprobs":[-0.5,0]`
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		for _, name := range []string{channel.RoutedExperts, upstream.IndexerTopK, channel.SamplingMask} {
			if body["return_"+name] == true {
				asked = append(asked, name)
			}
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"meta_info":{`+meta+`}}`)
	}))
	defer server.Close()
	s, err := upstream.NewServer(upstream.ServerOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	s.Experts = model
	drawn, repeats := false, false
	probe := func() *upstream.Capabilities {
		p := &prober{ctx: t.Context(), s: s, caps: &upstream.Capabilities{}, repeats: repeats}
		if err := p.channels(); err != nil {
			t.Fatal(err)
		}
		drawn = p.drawn
		return p.caps
	}
	if probe(); len(asked) != 0 {
		t.Errorf("asked for %v", asked)
	}
	s.Channels = []string{channel.RoutedExperts, upstream.IndexerTopK, channel.SamplingMask}
	c := probe()
	if !slices.Equal(asked, s.Channels) || len(c.Missing) != 0 || len(c.Channels) != 3 || !drawn {
		t.Fatalf("asked for %v, found %+v, lacks %v", asked, c.Channels, c.Missing)
	}
	if f := c.Channels[0]; f.DType != channel.U8 || !slices.Equal(f.Row, []int{2, 2}) || f.Experts != 160 || !slices.Equal(f.Routed, []bool{false, true}) || f.Whole {
		t.Errorf("experts %+v", f)
	}
	if f := c.Channels[1]; f.DType != channel.I32 || !slices.Equal(f.Row, []int{2, 3}) || !f.Whole {
		t.Errorf("indexer %+v", f)
	}
	repeats = true
	if c = probe(); len(c.Channels) != 2 || len(c.Missing) != 1 || !c.Missing[0].Fatal || !strings.Contains(c.Missing[0].String(), "--incremental-streaming-output") {
		t.Errorf("a server whose events repeat all masks: %+v, lacks %v", c.Channels, c.Missing)
	}
	repeats, meta = false, `"completion_tokens":2`
	c = probe()
	status = 400
	refused := probe()
	for i, flag := range []string{"--enable-return-routed-experts", "--enable-return-indexer-topk", "--sampling-mask-max-tokens"} {
		for _, lacks := range [][]upstream.Missing{c.Missing, refused.Missing} {
			if len(lacks) != 3 || !lacks[i].Fatal || !strings.Contains(lacks[i].String(), flag) {
				t.Errorf("lacks %v, want %s", lacks, flag)
			}
		}
	}
}
