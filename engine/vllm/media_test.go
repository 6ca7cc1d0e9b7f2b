package vllm

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// Ids of the small model that sees images, and of the server that stands for it.
const (
	mediaPad  = 56
	mediaWide = 4
)

// seeing is a server that takes images as vLLM 0.32 does: it expands the first ids that look like a placeholder, one for
// each part that it knows. Parts of other types, and placeholders without a part, it leaves out without a word.
type seeing struct {
	mu sync.Mutex
	// textOnly: its model reads no images. twice: its processor makes placeholders of two times as many ids. mute: it is
	// older, and says nothing of prompts.
	textOnly, twice, mute bool
	// asked are the ids and parts of each call that sampled.
	asked []seenCall
}

type seenCall struct {
	IDs   []int32             `json:"token_ids"`
	Parts []map[string]string `json:"content_parts"`
	Told  bool                `json:"return_token_ids"`
	// Stream, else the answer comes as a whole.
	Stream bool `json:"stream"`
}

func (s *seeing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, _ := io.ReadAll(r.Body)
	switch r.URL.Path {
	case "/tokenize":
		if s.textOnly {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"message":"At most 0 image(s) may be provided in one prompt.","type":"BadRequestError","code":400}}`)
			return
		}
		ids := []int32{3, 43, 27, 54}
		for range strings.Count(string(text), `"image_url":{"url":"data:`) {
			ids = append(append(ids, slices.Repeat([]int32{mediaPad}, mediaWide)...), 55)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
	case pathGenerate:
		var call seenCall
		if err := json.Unmarshal(text, &call); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.asked = append(s.asked, call)
		s.answer(w, &call)
	default:
		http.NotFound(w, r)
	}
}

// expand does what the server's processor does.
func (s *seeing) expand(call *seenCall) (ids []int32, places []placement) {
	wide := mediaWide
	if s.twice {
		wide *= 2
	}
	parts := 0
	for _, p := range call.Parts {
		if p["type"] == "image_url" {
			parts++
		}
	}
	for _, id := range call.IDs {
		if id != mediaPad || len(places) == parts {
			ids = append(ids, id)
			continue
		}
		places = append(places, placement{Offset: int32(len(ids)), Length: int32(wide)})
		ids = append(ids, slices.Repeat([]int32{mediaPad}, wide)...)
	}
	return ids, places
}

func (s *seeing) answer(w http.ResponseWriter, call *seenCall) {
	ids, places := s.expand(call)
	reply := map[string]any{"choices": []any{map[string]any{"index": 0, "token_ids": []int32{30}, "finish_reason": "stop",
		"logprobs": map[string]any{"content": []any{map[string]any{"token_id": 30, "logprob": -1.5}}}}}}
	if call.Told && !s.mute {
		reply["prompt_token_ids"] = ids
		if len(places) > 0 {
			reply["mm_placeholders"] = map[string]any{"image": places}
		}
	}
	text, _ := json.Marshal(reply)
	if call.Stream {
		fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", text)
		return
	}
	_, _ = w.Write(text)
}

// mediaServer is a server that takes images: a real one where the environment names it.
func mediaServer(t *testing.T, s *seeing) *upstream.Server {
	address := os.Getenv("HEADWAY_TEST_VLLM_VISION")
	if address == "" || s.textOnly || s.twice || s.mute {
		fake := httptest.NewServer(s)
		t.Cleanup(fake.Close)
		address = fake.URL
	}
	server, err := upstream.NewServer(upstream.ServerOptions{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func seeingCaps() *upstream.Capabilities {
	return &upstream.Capabilities{Model: "policy", Private: &learnt{generate: true}}
}

func TestSeeLearnsThePlaceholder(t *testing.T) {
	sight, err := New().See(t.Context(), mediaServer(t, &seeing{}), media.Image, seeingCaps())
	if err != nil || sight.Pad != mediaPad {
		t.Fatalf("sight %+v, %v: want the id %d", sight, err, mediaPad)
	}
	t.Logf("processor %+v", sight.Processor)
}

// Nothing is sampled where an image would be left out.
func TestSeeRefuses(t *testing.T) {
	older := seeingCaps()
	older.Private = &learnt{}
	for _, c := range []struct {
		name, modality, want string
		server               *seeing
		caps                 *upstream.Capabilities
	}{
		{"an image at a text model", media.Image, "reads text alone", &seeing{textOnly: true}, seeingCaps()},
		{"a server that says nothing of prompts", media.Image, "does not say", &seeing{mute: true}, seeingCaps()},
		{"a server that renders otherwise than it samples", media.Image, "does not expand", &seeing{twice: true}, seeingCaps()},
		{"the older way of sampling", media.Image, "--enable-scale-out", &seeing{}, older},
		{"a video", "video", "video", &seeing{}, seeingCaps()},
	} {
		_, err := New().See(t.Context(), mediaServer(t, c.server), c.modality, c.caps)
		if !errors.Is(err, port.ErrMedia) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// sends has the dialect make a request after a prompt with two images, and the server read it.
func sends(t *testing.T, s *seeing, change func(*upstream.Request)) (seenCall, *upstream.Delta) {
	t.Helper()
	image := probeImage()
	item := func(offset int32) media.Item {
		return media.Item{Modality: media.Image, Type: "image/png", Data: image, Offset: offset, Length: mediaWide}
	}
	r := upstream.Request{ID: "a", Prompt: []int32{3, 27, 54, mediaPad, mediaPad, mediaPad, mediaPad, 55, 30, 54, mediaPad, mediaPad, mediaPad, mediaPad, 55, 9},
		Media: []media.Item{item(3), item(10)}, MaxTokens: 1, Sampling: port.Sampling{Temperature: 1}}
	if change != nil {
		change(&r)
	}
	server := mediaServer(t, s)
	call, err := New().Generate(r, seeingCaps())
	if err != nil {
		t.Fatal(err)
	}
	body, err := server.Open(t.Context(), http.MethodPost, call)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var sent seenCall
	if err := json.Unmarshal(call.Body, &sent); err != nil {
		t.Fatal(err)
	}
	events := upstream.NewEventReader(body, &r)
	data, err := events.Next()
	if err != nil {
		t.Fatal(err)
	}
	var d upstream.Delta
	if err := New().Decoder(r, seeingCaps()).Event(data, &d); err != nil {
		t.Fatal(err)
	}
	return sent, &d
}

// Placeholders expanded twice: a prompt goes to the server with one id for each, and comes back as it is recorded.
func TestPlaceholdersGoCollapsed(t *testing.T) {
	sent, d := sends(t, &seeing{}, nil)
	if want := []int32{3, 27, 54, mediaPad, 55, 30, 54, mediaPad, 55, 9}; !slices.Equal(sent.IDs, want) || len(sent.Parts) != 2 || !sent.Told {
		t.Errorf("sent %v with %d parts, want %v", sent.IDs, len(sent.Parts), want)
	}
	if _, text, _ := strings.Cut(sent.Parts[1]["url"], ","); text != base64.StdEncoding.EncodeToString(probeImage()) {
		t.Error("the second part has other bytes")
	}
	x := d.Expanded
	if x == nil || len(x.Prompt) != 16 || len(x.Places) != 2 || x.Places[0].Offset != 3 || x.Places[1].Offset != 10 || x.Places[1].Length != mediaWide {
		t.Fatalf("the server has read %+v", x)
	}
	if len(d.Tokens) != 1 {
		t.Errorf("%d tokens of the first event are lost", len(d.Tokens))
	}
}

// Ids that are expanded already are expanded once more by the server, which says so alone to who listens.
func TestExpandedTwiceShows(t *testing.T) {
	_, d := sends(t, &seeing{}, func(r *upstream.Request) { // as if each placeholder had one id
		r.Media[0].Length, r.Media[1].Length = 1, 1
	})
	if x := d.Expanded; x == nil || len(x.Prompt) == 16 {
		t.Fatalf("the server has read %+v", x)
	}
}

func TestMediaByTheOlderWay(t *testing.T) {
	_, err := New().Generate(upstream.Request{Prompt: []int32{1}, Media: []media.Item{{}}, MaxTokens: 1}, &upstream.Capabilities{Model: "m", Private: &learnt{}})
	if !errors.Is(err, port.ErrMedia) {
		t.Errorf("a request with an image goes out: %v", err)
	}
}
